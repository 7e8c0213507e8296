from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sklar.budget.certificate import rounded_up
from sklar.budget.ledger import Ledger
from sklar.files.archive import load
from sklar.fitting.margins import digits, rounded
from sklar.kernel.theorems import NOTHING, Budget, gaussian_epsilon, laplace_epsilon
from sklar.release import measure
from sklar.trust.exact import TOLERANCE, exact_epsilon
from sklar.trust.verify import verify
from sklar.trust.verify.refit import open_bits
from tests.cli.conftest import call
from tests.trust.conftest import KINDS, SCHEMA, table
from tests.trust.forge import forged
from tests.trust.shapes import FEW, SHAPES, both

DELTA = 2.0**-30
GROUPS: list[tuple[list[float], list[int]]] = [
    ([79.8], [210]), ([40.0, 90.0], [28, 182]), ([9.0, 20.0], [6, 6]), ([0.6], [6]), ([11017.0], [4_002_000]),
    ([9000.0, 15000.0], [4000, 3_998_000]), ([1e6], [6]),
]  # fmt: skip


@pytest.mark.parametrize(("scales", "shifts"), GROUPS)
def test_the_independent_path_agrees_with_the_theorems(scales: Any, shifts: Any) -> None:
    scales, shifts = np.array(scales), np.array(shifts)
    exact = exact_epsilon("laplace", scales, shifts, DELTA)
    assert exact == pytest.approx(laplace_epsilon(scales, shifts, DELTA), rel=TOLERANCE)
    # The Gaussian theorems are upper bounds: 4 units of variance, or zCDP, above the truth.
    claimed = gaussian_epsilon(scales, shifts, DELTA)
    exact = exact_epsilon("gaussian", scales, shifts, DELTA)
    assert exact <= claimed * (1 + TOLERANCE)
    assert exact >= claimed * (0.95 - 3 / scales.min() ** 2) or scales.min() < 3


@pytest.mark.parametrize(("scale", "shifts", "rows"), [(1.5, 2, 1), (2.0, 1, 3), (40.0, 1, 3)])
def test_shifts_by_brute_force(scale: float, shifts: int, rows: int) -> None:
    """One or two cells shifted by so many rows: the loss's law from all whole numbers, or all pairs of them."""
    x, delta = np.arange(-int(40 * scale), int(40 * scale) + 1), 1e-4
    mass = np.exp(-(x**2) / (2 * scale**2))
    mass, loss = mass / mass.sum(), (2 * rows * x + rows**2) / (2 * scale**2)
    if shifts == 2:
        mass, loss = np.outer(mass, mass), np.add.outer(loss, loss)

    def delta_at(epsilon: float) -> float:
        return float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0)))

    found = exact_epsilon("gaussian", np.array([scale]), [shifts], delta, rows=rows)
    assert delta_at(found * 1.003) < delta < delta_at(found * 0.997)
    laplace = exact_epsilon("laplace", np.array([scale]), [2], delta, rows=rows)
    assert laplace == pytest.approx(exact_epsilon("laplace", np.array([scale / rows]), [2], delta))


CHECKS = [
    "format", "layout", "schema", "settings", "unit", "rows", "measurements", "arrays", "domains", "theorem",
    "independent", "noise", "model",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_genuine_file_passes(genuine: dict[str, Path], kind: str) -> None:
    """By chance less than once in a million, each."""
    found = verify(genuine[kind])
    assert found.passed, found.lines()
    assert [check.name for check in found.checks] == CHECKS
    assert found.certificate is not None
    assert found.independent_epsilon is not None
    assert found.independent_epsilon <= found.certificate.epsilon * (1 + TOLERANCE)
    text = " ".join(found.lines())
    assert "agrees with its certificate" in text
    assert "Other releases of the same rows do add to it" in text


def test_files_on_the_command_line(genuine: dict[str, Path], tmp_path: Path) -> None:
    """Laplace noise called Gaussian of that scale is more noise than is stated: no false claim, but not the plan."""
    assert json.loads(call("verify", genuine["paper"], "--json", cwd=tmp_path).output)["passed"] is True
    other = {"mechanism": "gaussian", "composition": "tight"}
    path = forged(genuine["laplace"], lambda document, _: document["certificate"].update(other), tmp_path / "f.sklar")
    shown = call("verify", path, "--refit", cwd=tmp_path, code=1)
    assert "FAIL" in shown.output
    assert "Do not rely on its privacy claim." in shown.output


@pytest.mark.parametrize("scale", [1e-308, 1e-160, 1e-5, 0.0, -1.0, 1e10, 1e155, float("nan"), float("inf")])
def test_scales_that_nobody_can_draw_fail(genuine: dict[str, Path], scale: float, tmp_path: Path) -> None:
    """In the arrays and in the certificate alike; they once ended in a traceback."""

    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        for entry in document["certificate"]["measurements"]:
            entry["scale"] = scale if np.isfinite(scale) else 1.0
        arrays["scales"] = np.full_like(arrays["scales"], scale)

    found = verify(forged(genuine["auto"], change, tmp_path / "f.sklar"))
    assert not found.passed
    assert "Do not rely on its privacy claim." in found.lines()[-1]


@pytest.mark.parametrize("epsilon", [0.3, 2.7])
def test_cost_charge_and_claim_agree(epsilon: float, tmp_path: Path) -> None:
    """What verify recomputes is within what the ledger was charged, and that within what the certificate states.

    The claim is the budget, fixed beforehand; what a second stage happens to cost is stated nowhere.
    """
    ledger, budget = Ledger(tmp_path / "ledger.db"), Budget(epsilon=epsilon)
    ledger.open_account("people", epsilon=epsilon, delta=DELTA)
    measured = measure(table(), SCHEMA, budget, ledger=ledger)
    (charge,) = ledger.account("people").charges
    cost = budget.spent(sum((block.spend(budget) for block in measured.blocks), NOTHING))
    assert cost <= charge.body["epsilon"] <= measured.certificate.epsilon == epsilon
    assert charge.body["delta"] == measured.certificate.delta
    assert not hasattr(measured.certificate, "spent_epsilon")


ROUNDED = ((1.0, 4, "1"), (0.1, 4, "0.1"), (1.00001, 4, "1.001"), (2.0**-30, 3, "9.32e-10"), (0.99999, 2, "1"))


@pytest.mark.parametrize(("value", "digits", "shown"), [*ROUNDED, (0.0, 3, "0")])
def test_bounds_are_shown_rounded_up(value: float, digits: int, shown: str) -> None:
    assert rounded_up(value, digits) == shown
    assert float(shown) >= value


def test_many_small_scales_do_not_keep_a_stranger_waiting() -> None:
    """A million scales are taken as few, at the largest of each run: never more than they cost."""
    scales = np.linspace(1.6, 2.9, 6)
    every = exact_epsilon("gaussian", scales, np.full(6, 2), 1e-6)
    claimed = gaussian_epsilon(scales, np.full(6, 2), 1e-6)
    assert 0.9 * claimed < every <= claimed * (1 + TOLERANCE)
    assert exact_epsilon("laplace", np.linspace(0.5, 2.9, 100_000), np.full(100_000, 2), 1e-6) > 1e4
    # Nor does the smallest noise overflow.
    assert exact_epsilon("laplace", np.array([2.0**-10]), np.array([2]), 1e-9) == pytest.approx(2048, rel=TOLERANCE)


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES]
)
def test_genuine_releases_of_every_shape_have_not_failed(name: str, tmp_path: Path) -> None:
    """Plainly and after a refit, which repeats the fit; by chance less than once in a million, each."""
    plain, refitted = both(SHAPES[name], tmp_path)
    assert (plain.passed, refitted.passed) == (True, True), refitted.lines()
    state = {check.name: check.passed for check in refitted.checks}
    assert state["refit"] is True
    # What could not be tested is said, and concluded of nothing.
    assert ("looks as it says" in "\n".join(plain.lines())) == bool(state.get("noise"))
    assert (refitted.verdict == "verified") == (None not in state.values())


def test_how_much_a_file_that_verifies_can_hide_is_stated(genuine: dict[str, Path]) -> None:
    """SECURITY.md has the numbers of these models; a hundredth of values, each a unit up or down, is all."""
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    for kind in ("auto", "binary"):
        size = sum(array.size for array in load(genuine[kind]).copula.arrays().values())
        assert f"{open_bits(size, size // 100):,.0f} bits" in text
        assert f"{size:,}" in text
    # By brute force: which of five values are moved, and whither.
    assert 2 ** open_bits(5, 2) == pytest.approx(10 * 4)


@pytest.mark.parametrize("bits", [3, 12, 23])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numbers_are_stored_with_the_digits_that_matter(bits: int, kind: type[np.floating[Any]]) -> None:
    drawn = np.random.default_rng(0).standard_normal(2_000)
    values = np.concatenate([drawn, drawn * 1e-30, [0.0, np.inf, -np.inf, 1 - 2.0**-20]]).astype(kind)
    kept = rounded(values, bits)
    finite = np.isfinite(values)
    mantissa = np.ldexp(np.frexp(kept[finite].astype(np.float64))[0], bits)
    assert (mantissa == np.rint(mantissa)).all()
    assert (np.abs(kept[finite] - values[finite]) <= np.abs(values[finite]) * 2.0**-bits).all()
    assert (kept[~finite] == values[~finite]).all()


def test_models_in_memory_are_those_of_their_files(genuine: dict[str, Path]) -> None:
    """Rounded when they are fitted, and not when they are saved: so rows of a seed are the same."""
    for kind in ("auto", "binary"):
        model = load(genuine[kind])
        bits = digits(model.measured.blocks, model.n_rows)
        assert bits < 20
        for array in model.copula.arrays().values():
            assert (array == rounded(array, bits)).all()
