"""The audit passes here, and each planted flaw is found by the layer that should find it, and by the audit as a whole.

False alarms: each statistical comparison fails sound code with a chance of at most 1e-6 (`ALPHA`). Missed flaws: stated
at each test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from sklar.cli import cli
from sklar.errors import NoiseError
from sklar.kernel import noise
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.trust import audit as suite
from sklar.trust.audit import (
    Audit,
    Run,
    _judge_guesses,
    _judge_ratio,
    _mu,
    audit,
    check_distinguishing,
    check_fresh,
    check_noise,
    check_sensitivity,
    door,
    release_all,
    release_pair,
    table_schema,
)

PAIR = table_schema(4, 5)
WIDE = table_schema(*[2] * 20)
PURE = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
LOOSE = Budget(epsilon=18.0)


def wrong_sensitivity(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Budget, "shifts", 1)


def too_little_noise(patched: pytest.MonkeyPatch) -> None:
    for name in ("discrete_gaussian", "discrete_laplace"):
        real = getattr(noise, name)

        def weak(scales: Any, sizes: Any, real: Any = real) -> Any:
            return real((scales * 0.7).astype(np.float32).astype(np.float64), sizes)

        patched.setattr(door, name, weak)


def noise_on_seen_cells_only(patched: pytest.MonkeyPatch) -> None:
    real = door.Vault.measure

    def leaky(self: Any, plan: Any) -> Any:
        tables = real(self, plan)
        pairs = tables.pairs.copy()
        pairs[self._counts.pairs == 0] = 0
        object.__setattr__(tables, "pairs", pairs)
        return tables

    patched.setattr(door.Vault, "measure", leaky)


def literal(schema: Schema, budget: Budget) -> Run:
    """Algorithm 2 to the letter: four cells for every pair of dummies, Lap(2/e') on each, at a claim of e' in all."""

    def run(codes: NDArray[np.int32]) -> tuple[Any, Any]:
        x, y = (np.eye(size, dtype=np.int64)[codes[i]] for i, size in enumerate(schema.sizes))
        x, y = (part * (codes[i] >= 0)[:, None] for i, part in enumerate((x, y)))
        cells = np.concatenate([(u.T @ v).ravel() for u in (x, 1 - x) for v in (y, 1 - y)])
        scales = np.full(cells.size, 2 / budget.epsilon)
        return cells + door.discrete_laplace(scales[:1], np.array([cells.size])), scales

    return run


def literal_algorithm_2(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(suite, "release_pair", literal)


def noise_seeded_by_a_call(patched: pytest.MonkeyPatch) -> None:
    patched.setattr("sklar.kernel.noise.os.urandom", lambda count: bytes(count))


@pytest.mark.parametrize(
    ("flaw", "layers"),
    [
        (wrong_sensitivity, {"a sensitivity", "c whole"}),
        pytest.param(too_little_noise, {"c whole", "d sampler"}, marks=pytest.mark.slow),
        pytest.param(noise_on_seen_cells_only, {"a independence"}, marks=pytest.mark.slow),
        pytest.param(literal_algorithm_2, {"a sensitivity", "b per table"}, marks=pytest.mark.slow),
        pytest.param(noise_seeded_by_a_call, {"d sampler"}, marks=pytest.mark.slow),
    ],
)
def test_a_planted_flaw_fails_the_whole_audit(
    monkeypatch: pytest.MonkeyPatch, flaw: Callable[[pytest.MonkeyPatch], None], layers: set[str]
) -> None:
    """Missed with a chance below 1e-6 each: the statistical layers stand ten deviations beyond their bounds."""
    flaw(monkeypatch)
    shown = CliRunner().invoke(cli, ["audit", "--quick", "--json"])
    assert shown.exit_code == 1
    document = json.loads(shown.output)
    assert document["passed"] is False
    assert {finding["layer"] for finding in document["findings"] if not finding["passed"]} >= layers


def test_noise_that_a_process_seeds_fails_the_command(tmp_path: Path) -> None:
    """A real process whose entropy is seeded: every call differs, every process repeats itself."""
    (tmp_path / "sitecustomize.py").write_text("import os, random\nos.urandom = random.Random(1).randbytes\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "sklar", "audit", "--quick"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert "noise repeated by a call or a process" in failed[0]
    assert done.stdout.rstrip().endswith("THIS CODE IS NOT PRIVATE AS CLAIMED. Do not release with it.")


def test_sound_code_passes() -> None:
    shown = CliRunner().invoke(cli, ["audit", "--quick", "--json"])
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.output)
    assert document["passed"] is True
    assert {finding["layer"][0] for finding in document["findings"]} == {"a", "b", "c", "d"}


@pytest.mark.slow
def test_sound_code_passes_the_full_audit() -> None:
    found = audit()
    assert found.passed, found.lines()


@pytest.mark.parametrize("budget", [PURE, Budget(epsilon=1.0)], ids=["laplace", "gaussian"])
def test_wrong_sensitivity_is_flagged(monkeypatch: pytest.MonkeyPatch, budget: Budget) -> None:
    wrong_sensitivity(monkeypatch)
    worst, _ = check_sensitivity("", release_pair, PAIR, budget)
    assert not worst.passed
    assert worst.measured > 1.3


def test_too_little_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    too_little_noise(monkeypatch)
    for mechanism in ("gaussian", "laplace"):
        assert not any(finding.passed for finding in check_noise(mechanism, 80.0, 200_000))
    # 2,000 guesses, right with a chance of 0.96 where 0.93 fails: missed with a chance of 1e-11.
    (whole,) = check_distinguishing("", release_all, WIDE, LOOSE, trials=1_000)
    assert not whole.passed
    assert whole.measured > whole.claimed


def test_noise_on_seen_cells_only_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    noise_on_seen_cells_only(monkeypatch)
    assert not check_sensitivity("", release_pair, PAIR, PURE)[1].passed


@pytest.mark.parametrize(("sizes", "times"), [((4, 5), 14), ((10, 10), 36)])
def test_the_literal_algorithm_2_is_flagged(sizes: tuple[int, int], times: int) -> None:
    worst, _ = check_sensitivity("", literal, table_schema(*sizes), PURE)
    assert not worst.passed
    assert worst.measured == pytest.approx(times)
    if sizes == (4, 5):
        (bound,) = check_distinguishing("", literal, PAIR, PURE, trials=2_000)
        assert not bound.passed
        assert bound.measured > 1.5


def test_seeded_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    noise_seeded_by_a_call(monkeypatch)
    assert not check_fresh()[0].passed


def test_a_process_that_cannot_draw_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_FRESH", "raise SystemExit(3)")
    with pytest.raises(NoiseError, match=r"a fresh process must be able to draw noise, got an error\. Reinstall Sklar"):
        check_fresh()


def test_the_power_of_guesses_is_what_is_stated() -> None:
    """On scores drawn by their law, a fixed seed: sound noise passes, the stated share of it fails 9 times in 10."""
    generator = np.random.default_rng(5)
    claimed = _mu(LOOSE.epsilon, LOOSE.delta)

    def judge(mu: float, runs: int = 2_000) -> Any:
        scores = [generator.normal(sign * mu**2 / 2, mu, runs) for sign in (1, -1)]
        return _judge_guesses("", LOOSE, scores, claimed)

    sound = [judge(claimed) for _ in range(300)]
    assert all(finding.passed for finding in sound)
    stated = re.fullmatch(r"sees noise below (\d+)% of its scale, 9 times in 10", sound[0].power)
    assert stated is not None
    share = int(stated[1]) / 100
    assert 0.85 < share < 0.9
    found = np.mean([not judge(claimed / share).passed for _ in range(300)])
    # Rounded to a percent, which is worth about 0.05.
    assert 0.8 < found < 0.98
    assert judge(claimed, runs=20).power == "none: too few runs"


def test_the_power_of_ratios_is_what_is_stated() -> None:
    """Likewise for one table of Laplace noise: two shifts, each gaining or losing half of epsilon."""
    generator = np.random.default_rng(6)

    def judge(epsilon: float) -> Any:
        up = 1 / (1 + np.exp(-epsilon / 2))
        scores = [(generator.binomial(2, chance, 2_000) - 1).astype(np.float64) for chance in (up, 1 - up)]
        return _judge_ratio("", PURE, scores, 2)

    sound = [judge(1.0) for _ in range(200)]
    assert all(finding.passed for finding in sound)
    stated = re.fullmatch(r"sees epsilon above ([\d.]+), 9 times in 10", sound[0].power)
    assert stated is not None
    found = np.mean([not judge(float(stated[1])).passed for _ in range(200)])
    assert 0.85 < found <= 1.0
    # Not much smaller a flaw than stated is found as often.
    assert np.mean([not judge(0.85 * float(stated[1])).passed for _ in range(200)]) < 0.85


def test_the_report() -> None:
    found = Audit(findings=tuple(check_fresh()))
    assert found.lines()[-1] == "1 comparisons: nothing found."
    assert "claimed" in found.lines()[0]
