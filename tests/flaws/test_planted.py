"""Every planted flaw can be planted, and a few are caught here; `make flaws` lets tests, audit and verify catch all."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaws.planted import FLAWS, ROOT, Edit, Flaw, environment, plant
from tests.flaws.run import LEAST_BY_THE_AUDIT, by_audit, by_tests

NAMED = {flaw.name: flaw for flaw in FLAWS}
# Of each kind one, with the attack that must succeed: the whole audit takes too long here.
FAST = {
    "half the sensitivity": "check_records()",
    "stage two reuses the noise of stage one": "check_cells(folder, effort=QUICK)[1:2]",
    "data-dependent clipping above 1,000 rows": "[check_counts(folder, effort=QUICK)]",
    "three-way tables chosen by exact counts": "[check_third(folder)]",
}
ATTACK = """
import tempfile
from pathlib import Path
from sklar.trust.audit.counts import check_counts, check_records
from sklar.trust.audit.effort import QUICK
from sklar.trust.audit.noise import check_cells
from sklar.trust.audit.third import check_third
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    raise SystemExit(7 if any(not each.passed for each in {attack}) else 0)
"""


def test_there_are_enough_and_they_differ() -> None:
    assert len(NAMED) == len(FLAWS) >= 30
    assert sum(flaw.audited for flaw in FLAWS) >= LEAST_BY_THE_AUDIT
    assert all((ROOT / test.split("::")[0]).exists() for flaw in FLAWS for test in flaw.tests)


@pytest.mark.parametrize("name", NAMED)
def test_a_flaw_can_be_planted(name: str, tmp_path: Path) -> None:
    """Text that was rewritten since must be found again: otherwise nothing would be planted, and nothing caught."""
    plant(NAMED[name], tmp_path)
    for edit in NAMED[name].edits:
        ast.parse((tmp_path / "sklar" / edit.file).read_text())


def test_a_text_that_is_not_there_is_told(tmp_path: Path) -> None:
    lost = Flaw(name="lost", edits=(Edit("release.py", "no such text", ""),), tests=())
    with pytest.raises(
        AssertionError, match=r"lost: the text to replace must stand in release\.py once: 'no such text'"
    ):
        plant(lost, tmp_path)


@pytest.mark.parametrize("name", FAST)
def test_an_attack_catches_a_planted_flaw(name: str, tmp_path: Path) -> None:
    """Missed with a chance below 1e-6 each."""
    plant(NAMED[name], tmp_path)
    program = ATTACK.format(attack=FAST[name])
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(tmp_path), check=False)
    assert done.returncode == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_tests_and_audit_catch_a_planted_flaw(name: str, tmp_path: Path) -> None:
    flaw = NAMED[name]
    plant(flaw, tmp_path)
    assert by_tests(flaw, tmp_path)
    assert bool(by_audit(tmp_path)) or not flaw.audited
