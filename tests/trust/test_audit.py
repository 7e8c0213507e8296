"""The audit passes here, and each flaw in what comes out is found by the comparison that should find it.

Flaws planted in the code itself are in `tests/flaws`. False alarms: each statistical comparison fails sound code with a
chance of at most 1e-6 (`ALPHA`). Missed flaws: stated at each test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from sklar.cli import cli
from sklar.errors import NoiseError
from sklar.kernel.noise import discrete_laplace
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.trust import attack, audit
from sklar.trust.attack import (
    Run,
    _judge_guesses,
    _judge_ratio,
    _mu,
    check_distinguishing,
    check_fresh,
    check_noise,
    check_sensitivity,
    exactly,
    release_once,
    table_schema,
)
from sklar.trust.audit import Audit

PAIR = table_schema(4, 5)
WIDE = table_schema(*[2] * 20)
PURE = Budget(epsilon=1.0, mechanism="laplace", composition="basic")
LOOSE = Budget(epsilon=18.0)


def flawed(change: Any) -> Any:
    """A release whose noise is changed: `change(exact, noise)` gives the noise that leaves."""

    def release(schema: Schema, budget: Budget) -> Run:
        sound, exact = release_once(schema, budget), exactly(release_once, schema, budget)

        def run(codes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
            cells, scales = sound(codes)
            counts = exact(codes)[0]
            return counts + change(counts, cells - counts), scales

        return run

    return release


too_little = flawed(lambda _, noise: np.rint(0.7 * noise).astype(np.int64))
seen_only = flawed(lambda exact, noise: np.where(exact == 0, 0, noise))
shared = flawed(lambda _, noise: np.concatenate([noise[:1], noise[:1], noise[2:]]))


def halved(schema: Schema, budget: Budget) -> Run:
    """Noise for half the sensitivity: what replace-one would get if it were planned as add-remove."""
    return release_once(
        schema, Budget(epsilon=2 * budget.epsilon, mechanism=budget.mechanism, composition=budget.composition)
    )


def literal(schema: Schema, budget: Budget) -> Run:
    """Algorithm 2 to the letter: four cells for every pair of dummies, Lap(2/e') on each, at a claim of e' in all."""

    def run(codes: NDArray[np.int32]) -> tuple[Any, Any]:
        x, y = (np.eye(size, dtype=np.int64)[codes[i]] for i, size in enumerate(schema.sizes))
        x, y = (part * (codes[i] >= 0)[:, None] for i, part in enumerate((x, y)))
        cells = np.concatenate([(u.T @ v).ravel() for u in (x, 1 - x) for v in (y, 1 - y)])
        scales = np.full(cells.size, float(np.float32(2 / budget.epsilon)))
        return cells + discrete_laplace(scales[:1], np.array([cells.size])), scales

    return run


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
    found = audit.audit()
    assert found.passed, found.lines()


def test_an_audit_that_cannot_run_is_no_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NoiseError, match=r"^the audit's own process must run to its end, got an error\. Run python -m"):
        audit.audit(quick=True)


@pytest.mark.parametrize("budget", [PURE, Budget(epsilon=1.0)], ids=["laplace", "gaussian"])
def test_wrong_sensitivity_is_flagged(budget: Budget) -> None:
    worst, _ = check_sensitivity("", halved, PAIR, budget)
    assert not worst.passed
    assert worst.measured > 1.3


def test_too_little_noise_is_flagged() -> None:
    # 2,900 squares of mean 0.49, where 0.86 fails: a hundred deviations.
    assert not check_sensitivity("", too_little, PAIR, Budget(epsilon=1.0))[1].passed
    # 2,000 guesses, right with a chance of 0.96 where 0.93 fails: missed with a chance of 1e-11.
    (whole,) = check_distinguishing("", too_little, WIDE, LOOSE, trials=1_000)
    assert not whole.passed
    assert whole.measured > whole.claimed


@pytest.mark.parametrize("release", [seen_only, shared], ids=["seen only", "shared"])
@pytest.mark.parametrize("budget", [PURE, Budget(epsilon=1.0)], ids=["laplace", "gaussian"])
def test_cells_without_noise_of_their_own_are_flagged(release: Any, budget: Budget) -> None:
    assert not check_sensitivity("", release, PAIR, budget)[1].passed


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_sampler_of_another_scale_is_flagged(monkeypatch: pytest.MonkeyPatch, mechanism: Any) -> None:
    def weak(scales: Any, sizes: Any) -> Any:
        return real((scales * 0.7).astype(np.float32).astype(np.float64), sizes)

    real = getattr(attack, f"discrete_{mechanism}")
    monkeypatch.setattr(attack, f"discrete_{mechanism}", weak)
    assert not any(finding.passed for finding in check_noise(mechanism, 80.0, 200_000))


@pytest.mark.parametrize(("sizes", "times"), [((4, 5), 14), ((10, 10), 36)])
def test_the_literal_algorithm_2_is_flagged(sizes: tuple[int, int], times: int) -> None:
    worst, _ = check_sensitivity("", literal, table_schema(*sizes), PURE)
    assert not worst.passed
    assert worst.measured == pytest.approx(times)
    if sizes == (4, 5):
        (bound,) = check_distinguishing("", literal, PAIR, PURE, trials=2_000)
        assert not bound.passed
        assert bound.measured > 1.5


def test_repeated_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "discrete_gaussian", lambda _scales, sizes: np.arange(sizes[0]))
    assert not check_fresh()[0].passed


def test_a_process_that_cannot_draw_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "_FRESH", "raise SystemExit(3)")
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
