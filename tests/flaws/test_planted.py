"""Every planted flaw can be planted, and a few are caught here; `make flaws` lets tests, audit and verify catch all."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaws.planted import FLAWS, PACKAGE, ROOT, Edit, Flaw, environment, flawed_texts, plant
from tests.flaws.run import LEAST_BY_THE_AUDIT, by_audit, by_tests

NAMED = {flaw.name: flaw for flaw in FLAWS}
# Of each kind one, with the attack that must succeed: the whole audit takes too long here.
FAST = {
    "half the sensitivity": "attack_cost(kinds()[0], [kinds()[0].measure()])",
    "stage two reuses the noise of stage one": ("attack_noise(kinds()[0], [kinds()[0].measure() for _ in range(20)])"),
    # Counted without compiled code, which the copy would have to compile.
    "data-dependent clipping above 1,000 rows": "next(check_counts(folder, replace(QUICK, wide_rows=1_000)))",
    "three-way tables without noise": "attack_noise(kinds()[8], [kinds()[8].measure() for _ in range(10)])",
}
ATTACK = """
import tempfile
from dataclasses import replace
from pathlib import Path
from sklar.trust.audit import QUICK
from sklar.trust.audit.by_kind import attack_cost, attack_noise
from sklar.trust.audit.kinds import kinds
from sklar.trust.audit.sensitivity import check_counts
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    raise SystemExit(0 if {attack}.passed else 7)
"""


def test_there_are_enough_and_they_differ() -> None:
    assert len(NAMED) == len(FLAWS) >= 30
    assert sum(flaw.audited for flaw in FLAWS) >= LEAST_BY_THE_AUDIT
    assert all((ROOT / test.split("::")[0]).exists() for flaw in FLAWS for test in flaw.tests)


@pytest.mark.parametrize("name", NAMED)
def test_a_flaw_can_be_planted(name: str) -> None:
    """Text that was rewritten since must be found again: otherwise nothing would be planted, and nothing caught."""
    for text in flawed_texts(NAMED[name]).values():
        ast.parse(text)


def test_a_copy_differs_where_the_flaw_is(tmp_path: Path) -> None:
    flaw = NAMED["half the sensitivity"]
    plant(flaw, tmp_path)
    changed = {
        str(path.relative_to(tmp_path / "sklar"))
        for path in (tmp_path / "sklar").rglob("*.py")
        if path.read_text() != (PACKAGE / path.relative_to(tmp_path / "sklar")).read_text()
    }
    assert changed == {edit.file for edit in flaw.edits}


def test_a_text_that_is_not_there_is_told() -> None:
    lost = Flaw(name="lost", edits=(Edit("release.py", "no such text", ""),), tests=())
    with pytest.raises(
        AssertionError, match=r"lost: the text to replace must stand in release\.py once: 'no such text'"
    ):
        flawed_texts(lost)


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
