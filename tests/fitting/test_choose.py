from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sklar.fitting.choose import (
    EVERY,
    LOSS,
    PATIENCE,
    Choice,
    Race,
    Split,
    fit_auto,
    follow,
    starting,
    step_limit,
    thin,
    union_size,
)
from sklar.fitting.denoise import relative_precision
from sklar.fitting.descent import Room, Start, cell_weights
from sklar.kernel.cells import Cells
from tests.fitting.test_denoise import mixture_joint, noisy_estimates, schema_of
from tests.fitting.test_descent import softmaxed


def test_halves_are_unbiased_independent_and_wider() -> None:
    schema = schema_of(40, 50, 60)
    sd, n = 25.0, 10_000
    joint = mixture_joint(schema, 2, 0)
    estimates = noisy_estimates(schema, joint, n, sd, seed=1, one_way_sd=10.0)
    train, held = thin(estimates, np.random.Generator(np.random.SFC64(0)))
    truth = n * schema.cells.flat(joint)
    a, b = train.pairs - truth, held.pairs - truth
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(a.size)
    assert abs(a.mean()) < 5 * sd * 1.25**0.5 / np.sqrt(a.size)
    assert abs(b.mean()) < 5 * sd * 5**0.5 / np.sqrt(b.size)
    assert np.isclose(a.std(), train.pair_sd[0], rtol=0.05)
    assert np.isclose(b.std(), held.pair_sd[0], rtol=0.05)
    assert np.isclose(held.one_way_sd[0], 10.0 * 5**0.5)
    assert np.isclose((held.one_way - n * np.diag(joint)).std(), 10.0 * 5**0.5, rtol=0.3)
    # What was measured is their inverse-variance average.
    assert np.allclose((train.pairs / 1.25 + held.pairs / 5) / (1 / 1.25 + 1 / 5), estimates.pairs)


def test_held_out_error_is_that_of_the_tables_cell_by_cell() -> None:
    schema = schema_of(2, 3, 1, 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 3, 0), 1_000, 20.0)
    cells = schema.cells
    estimates = replace(estimates, pair_sd=np.random.default_rng(2).uniform(40, 120, cells.n_pairs))
    precision = relative_precision(cells, estimates.pair_sd)
    split = Split(estimates, np.random.Generator(np.random.SFC64(3)), cell_weights(cells, precision))
    _, held = thin(estimates, np.random.Generator(np.random.SFC64(3)))
    logits = np.random.default_rng(1).standard_normal((10, 6)).astype(np.float32)
    probabilities, found = softmaxed(logits, schema)
    weights = np.repeat(precision[cells.pairs], cells.pair_sizes)
    alone = cells.flat(np.outer(split.targets.levels, split.targets.levels))
    predicted = cells.flat(probabilities.astype(np.float64) @ probabilities.T / 6)
    errors = [(weights * (table - held.pairs / 1_000) ** 2).sum() for table in (predicted, alone)]
    kappa = (precision[cells.pairs] * (held.pair_sd / 1_000) ** 2).mean()
    chance = 2 * np.sqrt(kappa * (weights * (predicted - alone) ** 2).sum()) / errors[1]
    assert np.allclose(split.score(found, Room(cells, 6)), [errors[0] / errors[1], chance], rtol=1e-4)


def test_a_hopeless_candidate_is_given_up_early() -> None:
    schema = schema_of(3, 4, 5, 3, 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 4, 2), 50_000, 100.0)
    weights = cell_weights(schema.cells, relative_precision(schema.cells, estimates.pair_sd))
    splits = [Split(estimates, np.random.Generator(np.random.SFC64(3)), weights)]
    race = Race(split=0, start=Start(components=40), shrinkage=0.0)
    alone = follow(race, splits, max_steps=400)
    beaten = follow(replace(race, rival=alone[:, 0].min() - 0.5), splits, max_steps=400)
    equal = follow(replace(race, rival=alone[:, 0].min()), splits, max_steps=400)
    assert len(beaten) < len(alone) / 2
    assert np.array_equal(beaten, alone[: len(beaten)])
    assert np.array_equal(equal[: alone[:, 0].argmin()], alone[: alone[:, 0].argmin()])


def test_a_model_that_overfits_is_stopped() -> None:
    schema = schema_of(*[30] * 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 2, 2), 20_000, 400.0)
    weights = cell_weights(schema.cells, relative_precision(schema.cells, estimates.pair_sd))
    splits = [Split(estimates, np.random.Generator(np.random.SFC64(3)), weights)]
    errors = follow(Race(split=0, start=Start(), shrinkage=0.0), splits, max_steps=400)[:, 0]
    best = int(errors.argmin())
    assert 0 < best < errors.size - 1 < best + PATIENCE // EVERY
    lost = (errors[best:] - errors[best]) / (1 - errors[best])
    assert lost[-1] > LOSS >= lost[:-1].max()


def test_pure_noise_is_left_independent() -> None:
    schema = schema_of(*[4] * 8)
    levels = np.full(32, 0.25)
    joint = np.outer(levels, levels)
    np.fill_diagonal(joint, levels)
    for seed in range(3):
        estimates = noisy_estimates(schema, joint, 1_000, 30.0, seed=seed)
        model, decisions = fit_auto(estimates, schema)
        assert decisions["kind"] == "independence"
        assert decisions["steps"] == 0
        assert model.n_components == 1


def test_structure_far_above_the_noise_is_found() -> None:
    schema = schema_of(3, 4, 5, 3, 4)
    cells, joint = schema.cells, mixture_joint(schema, 4, 2)
    levels, truth = np.diag(joint), cells.flat(joint)
    independence = np.abs(cells.flat(np.outer(levels, levels)) - truth).sum()
    shares = []
    for seed in range(5):
        estimates = noisy_estimates(schema, joint, 50_000, 100.0, seed=seed)
        model, decisions = fit_auto(estimates, schema)
        assert decisions["kind"] in ("mixture", "factor")
        assert decisions["steps"] >= 50
        assert 0 < decisions["gain_over_independence"] < 1
        assert len(decisions["tried"]) == 4
        error = np.abs(cells.flat(model.predict_pairs()) - truth).sum()
        assert error < 0.2 * independence
        shares.append(error / np.abs(estimates.pairs / 50_000 - truth).sum())
    # The error beside that of the noisy tables: 0.80 on average here, with a standard deviation of 0.06 for one table.
    assert np.mean(shares) < 0.85


def test_a_fit_is_a_function_of_the_tables() -> None:
    schema = schema_of(3, 2, 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 2, 2), 5_000, 50.0)
    (model, decisions), (again, decided) = (fit_auto(estimates, schema, kinds=("mixture",)) for _ in range(2))
    # To single precision: a product of matrices was once rounded differently in two runs of one process.
    np.testing.assert_allclose(model.probabilities, again.probabilities, atol=1e-5)
    tried, tried_again = decisions.pop("tried"), decided.pop("tried")
    assert decisions.pop("gain_over_independence") == pytest.approx(decided.pop("gain_over_independence"), abs=1e-6)
    assert decisions == decided
    for one, other in zip(tried, tried_again, strict=True):
        assert one.pop("gain") == pytest.approx(other.pop("gain"), abs=1e-6)
        assert one == other


def test_one_attribute_is_independent() -> None:
    schema = schema_of(4)
    estimates = noisy_estimates(schema, np.eye(4) / 4, 1_000, 10.0)
    model, decisions = fit_auto(estimates, schema)
    assert decisions["kind"] == "independence"
    assert model.n_components == 1
    assert step_limit(estimates, Start()) == 0


def test_a_factor_model_of_large_domains_has_fewer_points() -> None:
    assert starting(Cells([20, 20, 20]), "factor").components == 500
    assert 150 < starting(Cells([600, 600]), "factor").components < 300
    assert starting(Cells([2_000, 2_000]), "factor").components == 150
    assert {starting(Cells(sizes), "mixture").components for sizes in ([2], [20, 20], [2_000, 2_000])} == {150}


def test_wide_tables_take_fewer_steps_and_unite_fewer_fits() -> None:
    choice = Choice(start=Start(), shrinkage=0.0, steps=1_000, gain=0.5, tried=())
    wide = Cells([2] * 3_000)
    assert union_size(Cells([20] * 10), choice) == 8
    assert union_size(wide, choice) == 2
    # A quarter of the cells of a table of as many levels.
    assert union_size(Cells([2] * 2_000), choice) > union_size(Cells([4_000] * 2), choice)
    small = noisy_estimates(schema_of(2, 3), mixture_joint(schema_of(2, 3), 2, 0), 1_000, 10.0)
    assert step_limit(small, Start()) == 1_200
    assert step_limit(replace(small, n_rows=10_000_000), Start()) == 4_800
    sd = np.full(wide.n_pairs, 10.0)
    assert 100 <= step_limit(replace(small, cells=wide, pair_sd=sd), Start()) < 600
    assert step_limit(replace(small, cells=wide, pair_sd=sd), Start(components=100_000)) == 100
