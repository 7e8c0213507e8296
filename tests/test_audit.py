"""The audit passes here, and each planted flaw is found by the layer that should find it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from sklar import audit as suite
from sklar.audit import (
    Audit,
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
from sklar.budget import Budget
from sklar.cli import cli
from sklar.private import noise
from sklar.schema import Schema

PAIR = table_schema(4, 5)
PURE = Budget(epsilon=1.0, mechanism="laplace", composition="basic")


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


def test_wrong_sensitivity_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "shifts", 1)
    for budget in (PURE, Budget(epsilon=1.0)):
        worst, _ = check_sensitivity("", release_pair, PAIR, budget)
        assert not worst.passed
        assert worst.measured > 1.3


def test_too_little_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("discrete_gaussian", "discrete_laplace"):
        real = getattr(noise, name)

        def weak(scales: Any, sizes: Any, real: Any = real) -> Any:
            return real((scales * 0.7).astype(np.float32).astype(np.float64), sizes)

        monkeypatch.setattr(door, name, weak)
    for mechanism in ("gaussian", "laplace"):
        assert not any(finding.passed for finding in check_noise(mechanism, 80.0, 200_000))


def test_half_the_noise_is_flagged_by_the_whole_release(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.discrete_gaussian
    monkeypatch.setattr(door, "discrete_gaussian", lambda scales, sizes: real(scales * 0.5, sizes))
    (whole,) = check_distinguishing("", release_all, PAIR, Budget(epsilon=8.0), trials=1_500)
    assert not whole.passed
    assert whole.measured > whole.claimed


def test_noise_on_seen_cells_only_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    real = door.Vault.measure

    def leaky(self: Any, plan: Any) -> Any:
        tables = real(self, plan)
        pairs = tables.pairs.copy()
        pairs[self._counts.pairs == 0] = 0
        object.__setattr__(tables, "pairs", pairs)
        return tables

    monkeypatch.setattr(door.Vault, "measure", leaky)
    assert not check_sensitivity("", release_pair, PAIR, PURE)[1].passed


@pytest.mark.parametrize(("sizes", "times"), [((4, 5), 14), ((10, 10), 36)])
def test_the_literal_algorithm_2_is_flagged(sizes: tuple[int, int], times: int) -> None:
    """Four cells for every pair of dummies, Lap(2/e') on each, at a claim of e' = 1 in all."""

    def literal(codes: NDArray[np.int32], schema: Schema, budget: Budget) -> tuple[Any, Any]:
        x, y = (np.eye(size, dtype=np.int64)[codes[i]] for i, size in enumerate(schema.sizes))
        x, y = (part * (codes[i] >= 0)[:, None] for i, part in enumerate((x, y)))
        cells = np.concatenate([(u.T @ v).ravel() for u in (x, 1 - x) for v in (y, 1 - y)])
        scales = np.full(cells.size, 2 / budget.epsilon)
        return cells + door.discrete_laplace(scales[:1], np.array([cells.size])), scales

    worst, _ = check_sensitivity("", literal, table_schema(*sizes), PURE)
    assert not worst.passed
    assert worst.measured == pytest.approx(times)
    if sizes == (4, 5):
        (bound,) = check_distinguishing("", literal, PAIR, PURE, trials=2_000)
        assert not bound.passed
        assert bound.measured > 1.5


def test_seeded_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    # A seed per call.
    with monkeypatch.context() as patched:
        patched.setattr("sklar.private.noise.os.urandom", lambda count: bytes(count))
        assert not check_fresh()[0].passed
    # A seed per process.
    monkeypatch.setattr(suite, "_FRESH", "import random; random.seed(1); print(random.random())")
    assert not check_fresh()[0].passed


def test_the_report() -> None:
    found = Audit(findings=tuple(check_fresh()))
    assert found.lines()[-1] == "1 comparisons: nothing found."
    assert "claimed" in found.lines()[0]
