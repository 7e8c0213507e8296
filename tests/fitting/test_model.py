"""What both models promise: the same few methods, and files that hold all of a model."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.draw.blocks import Copula
from sklar.paper.estimate import fit_binary
from sklar.paper.gaussian import BinaryCopula, Repairs
from tests.fitting.test_descent import random_model
from tests.paper.test_estimate import SCHEMA, probabilities


def copulas() -> list[Copula]:
    fitted = (fit_binary(probabilities(), SCHEMA, dummies=dummies, weighted=True) for dummies in (False, True))
    return [random_model(SCHEMA, 3), *fitted]


@pytest.mark.parametrize("copula", copulas(), ids=["latent", "records", "dummies"])
def test_a_file_holds_all_of_a_model(copula: Copula) -> None:
    stored = copula.arrays()

    def array(name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        assert stored[name].shape == (size,)
        assert stored[name].dtype == kind
        return stored[name].copy()

    again = type(copula).read(SCHEMA, copula.describe(), array)
    assert type(again) is type(copula)
    for field in fields(copula):  # type: ignore[arg-type]
        assert np.array_equal(getattr(again, field.name), getattr(copula, field.name))
    assert again.describe() == copula.describe()
    assert copula.describe()["kind"] == copula.kind
    assert again.dummies == copula.dummies


def test_margins_are_probabilities_where_rows_are_records() -> None:
    latent, records, dummies = copulas()
    assert np.allclose(latent.margins(), random_model(SCHEMA, 3).probabilities.mean(axis=0))
    for copula in (latent, records):
        assert np.allclose(np.add.reduceat(copula.margins(), SCHEMA.offsets[:-1]), 1.0)
    assert np.array_equal(dummies.margins(), probabilities().levels)


def test_only_a_model_with_components_predicts_tables_in_closed_form() -> None:
    latent, records, dummies = copulas()
    predicted = latent.predict_pairs()
    assert predicted is not None
    assert not predicted[:4, :4].any()
    for copula in (records, dummies):
        assert copula.predict_pairs() is None
        assert copula.components() is None


def test_scaling_moves_levels_that_a_repair_may_move() -> None:
    step = np.ones(SCHEMA.n_levels)
    step[0] = step[4] = 2.0
    allowed = {(1, 2): np.ones((3, 2), dtype=bool)}
    latent, records, _ = copulas()
    moved = latent.scaled(step, allowed).margins()
    # Rules are about the second and the third attribute here.
    assert np.allclose(moved[:4], latent.margins()[:4])
    assert moved[4] > latent.margins()[4]
    assert np.allclose(np.add.reduceat(moved, SCHEMA.offsets[:-1]), 1.0)
    wanted = records.margins() * step
    assert np.allclose(records.scaled(step, allowed).margins()[:4], wanted[:4] / wanted[:4].sum())


def test_models_sum_up_how_they_were_fitted() -> None:
    latent, fitted = random_model(SCHEMA, 3), {"kind": "mixture", "fits": 2, "steps": 30, "priors": {"a": "own"}}
    assert latent.summary(fitted | {"gain_over_independence": 0.25}) == [
        "Model: mixture, 3 components from 2 fits of 30 steps.",
        "  Chosen on noisy tables alone: held-out error 25% below independence.",
        "  Margins shrunk by a fitted prior: a.",
    ]
    assert len(latent.summary(fitted | {"gain_over_independence": 0.25, "priors": {}})) == 2
    assert latent.summary({"kind": "independence"}) == [
        "Model: independence; the noisy tables support no dependence between attributes."
    ]
    repairs = Repairs(clipped_pairs=1_200, empty_attributes=2, negative_eigenvalues=5, moved=0.1, max_moved=0.1)
    none: dict[str, Any] = {name: np.empty(0, dtype=np.float32) for name in ("levels", "cuts", "factor")}
    assert BinaryCopula(schema=SCHEMA, dummies=False, repairs=repairs, **none).summary({}) == [
        "Model: binary copula; 1,200 pairs outside the possible range were clipped, 5 negative eigenvalues repaired.",
        "  2 attributes without any count are drawn evenly.",
    ]
