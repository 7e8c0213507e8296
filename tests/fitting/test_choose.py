from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sklar.fitting import choose
from sklar.fitting.denoise import denoise_margins, relative_precision
from sklar.fitting.descent import CellWeights, Room, Start
from sklar.fitting.latent import independent
from sklar.fitting.margins import Estimates
from sklar.kernel.cells import Cells
from sklar.machine.threads import using
from tests.fitting.test_denoise import independent_joint, mixture_joint, noisy_estimates, schema_of
from tests.fitting.test_descent import softmaxed


def split_of(estimates: Estimates, seed: int = 3) -> choose.Split:
    weights = CellWeights(estimates.cells, relative_precision(estimates.cells, estimates.pair_sd))
    return choose.Split(estimates, np.random.Generator(np.random.SFC64(seed)), weights)


def test_halves_are_unbiased_independent_and_wider() -> None:
    schema = schema_of(40, 50, 60)
    sd, n = 25.0, 10_000
    joint = mixture_joint(schema, 2, 0)
    estimates = noisy_estimates(schema, joint, n, sd, seed=1, one_way_sd=10.0)
    train, held = choose.thin(estimates, np.random.Generator(np.random.SFC64(0)))
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


@pytest.mark.parametrize("strip", [256, 4, 3])
def test_held_out_error_is_that_of_the_tables_cell_by_cell(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.fitting.descent.SMALL", strip)
    schema = schema_of(2, 3, 1, 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 3, 0), 1_000, 20.0)
    cells = schema.cells
    estimates = replace(estimates, pair_sd=np.random.default_rng(2).uniform(40, 120, cells.n_pairs))
    split, precision = split_of(estimates), relative_precision(cells, estimates.pair_sd)
    _, held = choose.thin(estimates, np.random.Generator(np.random.SFC64(3)))
    logits = np.random.default_rng(1).standard_normal((10, 6)).astype(np.float32)
    probabilities, found = softmaxed(logits, schema)
    weights = np.repeat(precision[cells.pairs], cells.pair_sizes)
    alone = cells.flat(np.outer(split.targets.levels, split.targets.levels))
    predicted = cells.flat(probabilities.astype(np.float64) @ probabilities.T / 6)
    errors = [(weights * (table - held.pairs / 1_000) ** 2).sum() for table in (predicted, alone)]
    kappa = (precision[cells.pairs] * (held.pair_sd / 1_000) ** 2).mean()
    chance = 2 * np.sqrt(kappa * (weights * (predicted - alone) ** 2).sum()) / errors[1]
    assert np.allclose(split.score(found, Room(cells, 6)), [errors[0] / errors[1], chance], rtol=1e-4)


def test_of_very_many_tables_some_judge_as_all_would(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(*[2] * 40)
    cells = schema.cells
    estimates = noisy_estimates(schema, mixture_joint(schema, 3, 0), 1_000, 20.0)
    _, found = softmaxed(np.random.default_rng(1).standard_normal((80, 6)).astype(np.float32), schema)
    monkeypatch.setattr("sklar.fitting.descent.SMALL", 4)

    def score(operations: float, seed: int) -> tuple[float, float]:
        monkeypatch.setattr("sklar.fitting.choose.step_operations", lambda *_: operations / choose.EVERY)
        split = split_of(estimates, seed)
        split._scale = 1.0
        return split.score(found, Room(cells, 6))

    # As many operations as let 10, 5 and 1 of 10 strips judge: right on average over which they are. The variance that
    # a gain has by chance grows as the tables' part of it is multiplied.
    judged = [[score(share * 40**2, seed) for seed in range(60)] for share in (1.0, 0.5, 0.1)]
    errors, chances = np.array(judged).transpose(2, 0, 1)
    assert errors.mean(axis=1) == pytest.approx(errors[0].mean(), rel=0.1)
    all_judge, half, tenth = (chances**2).mean(axis=1)
    assert (tenth - all_judge) / (half - all_judge) == pytest.approx(9, rel=0.1)


def test_a_model_that_overfits_is_stopped() -> None:
    schema = schema_of(*[15] * 4)
    split = split_of(noisy_estimates(schema, mixture_joint(schema, 2, 2), 20_000, 400.0))
    with using(1):
        alone = choose.follow(split, Start(), max_steps=400)
    with using(choose.SPLITS + 1):
        # Scored while the next steps are taken: the same.
        assert np.array_equal(choose.follow(split, Start(), max_steps=400), alone)
    errors, back = alone[:, 0], choose.WINDOW // choose.EVERY
    best = int(errors[1:].argmin()) + 1
    assert best < errors.size - 1
    least = np.minimum.accumulate(errors[1:])
    gained = least[:-back] - least[back:] - [choose.worth(error) for error in least[back:]]
    assert (gained[:-1] > 0).all()
    assert gained[-1] <= 0
    assert 0 < choose.stopping(alone) <= best


def test_a_fit_ends_at_the_first_step_that_is_nearly_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(3, 3)
    estimates = noisy_estimates(schema, mixture_joint(schema, 2, 2), 5_000, 50.0)
    near = 0.199 + choose.worth(0.199) / 5
    curve = np.array([[1.0, 0.0], [0.5, 0.01], [0.2, 0.01], [near, 0.01], [0.199, 0.01]])
    monkeypatch.setattr("sklar.fitting.choose.follow", lambda *_args, **_settings: curve)
    found = choose.choose_steps(estimates, Start(), [0, 1], 100)
    assert found == pytest.approx((3 * choose.EVERY, 1 - curve[3, 0], 0.4))
    monkeypatch.setattr("sklar.fitting.choose.follow", lambda *_args, **_settings: curve * [1, 400])
    assert choose.choose_steps(estimates, Start(), [0, 1], 100) == (0, 0.0, 0.4)
    # Both splits say together how much is shrunk: more only where that is clearly better.
    for share, shrinkage in ((0.98, 1.0), (0.998, 0.4)):
        told = iter([1.01, 1.01 * share + 0.1, 1.01, 1.01 * share - 0.1])

        def follow(*_args: Any, told: Iterator[float] = told, **_settings: Any) -> np.ndarray:
            return curve * [next(told), 1]

        monkeypatch.setattr("sklar.fitting.choose.follow", follow)
        with using(1):
            assert choose.choose_steps(estimates, Start(), [0, 1], 100, shrinkages=choose.SHRINKAGES)[2] == shrinkage


def test_shrunk_tables_alone_are_fitted_where_one_column_determines_others() -> None:
    """A column of 24 levels determines three, the rest are independent: more shrinkage, and a nearer model."""
    schema = schema_of(24, 3, 2, 2, 6, 5)
    cells, joint = schema.cells, independent_joint(np.concatenate([np.full(k, 1 / k) for k in (24, 3, 2, 2, 6, 5)]))
    for other, k in enumerate((3, 2, 2), 1):
        joint[cells.levels(0), cells.levels(other)] = np.eye(k).repeat(24 // k, 0) / 24
    estimates = noisy_estimates(schema, joint, 8_000, 40.0)
    model, decisions = choose.fit_auto(estimates, schema)
    assert decisions["shrinkage"] == 1.0
    levels, start = denoise_margins(estimates).levels, choose.starting(estimates)[0]
    chosen = {name: decisions[name] for name in ("steps", "fits")}
    mixed = choose.fit_steps(estimates, schema, levels, start, **chosen)
    errors = [np.abs(cells.flat(each.predict_pairs() - joint)).sum() for each in (model, mixed)]
    assert errors[0] < 0.9 * errors[1]


def test_what_a_model_misses_goes_with_it_where_values_are_exchanged() -> None:
    schema = schema_of(4, 4, 4)
    estimates = noisy_estimates(schema, mixture_joint(schema, 2, 2), 5_000, 5.0)
    coarse = replace(independent(schema, np.full(12, 0.25)), probabilities=np.full((2, 12), 0.25, np.float32))
    held = choose.refined(coarse, estimates, 12)
    assert held.missed.shape == (48,)
    assert np.array_equal(choose.completed(held, estimates, 12).missed, held.missed)
    assert not choose.refined(independent(schema, np.full(12, 0.25)), estimates, 12).missed.size
    assert not choose.completed(replace(held, rounds=0), estimates, 12).missed.size


def test_pure_noise_and_one_attribute_are_left_nearly_independent() -> None:
    """Of 12 tables of noise two get a model, and it is no further than 0.01 from independence (noise itself: 0.19)."""
    schema = schema_of(*[4] * 8)
    kinds = []
    for seed in range(4):
        estimates = noisy_estimates(schema, independent_joint(np.full(32, 0.25)), 1_000, 30.0, seed=seed)
        model, decisions = choose.fit_auto(estimates, schema)
        alone = schema.cells.flat(np.outer(model.margins(), model.margins()))
        assert np.abs(schema.cells.flat(model.predict_pairs()) - alone).sum() / 2 / schema.cells.n_pairs < 0.02
        kinds.append((decisions["kind"], decisions["steps"] == 0, model.n_components == 1))
    assert kinds.count(("independence", True, True)) >= 3
    one = schema_of(4)
    estimates = noisy_estimates(one, np.eye(4) / 4, 1_000, 10.0)
    model, decisions = choose.fit_auto(estimates, one)
    assert (decisions["kind"], model.n_components, choose.step_limit(estimates, Start())) == ("independence", 1, 0)


def test_weak_dependence_that_pairs_show_is_kept() -> None:
    """Noise is all of a two-way table's rows, and 66 pairs depend: a fit is nearer to the truth than margins."""
    schema = schema_of(*[6] * 12)
    cells, joint = schema.cells, mixture_joint(schema, 3, 2)
    for seed in (0, 2):
        estimates = noisy_estimates(schema, joint, 1_000, 100.0, seed=seed)
        levels = denoise_margins(estimates).levels
        model, decisions = choose.fit_auto(estimates, schema)
        assert decisions["kind"] == "mixture"
        error, alone = (
            np.abs(cells.flat(each) - cells.flat(joint)).sum()
            for each in (model.predict_pairs(), np.outer(levels, levels))
        )
        assert error < 0.95 * alone


def test_structure_far_above_the_noise_is_found() -> None:
    schema = schema_of(3, 4, 5, 3, 4)
    cells, joint = schema.cells, mixture_joint(schema, 4, 2)
    levels, truth = np.diag(joint), cells.flat(joint)
    independence = np.abs(cells.flat(np.outer(levels, levels)) - truth).sum()
    shares = []
    for seed in range(5):
        estimates = noisy_estimates(schema, joint, 50_000, 100.0, seed=seed)
        model, decisions = choose.fit_auto(estimates, schema)
        assert decisions["kind"] == "mixture"
        assert decisions["steps"] >= 50
        assert 0 < decisions["gain_over_independence"] < 1
        error = np.abs(cells.flat(model.predict_pairs()) - truth).sum()
        assert error < 0.2 * independence
        shares.append(error / np.abs(estimates.pairs / 50_000 - truth).sum())
    # The error beside that of the noisy tables: 0.80 on average here, with a standard deviation of 0.06 for one table.
    assert np.mean(shares) < 0.85


def test_models_are_larger_and_fits_longer_where_noise_is_small_and_steps_are_short() -> None:
    schema = schema_of(20, 20, 20)
    estimates = noisy_estimates(schema, mixture_joint(schema, 2, 0), 10_000, 100.0)

    def started(n_rows: int, cells: Cells) -> tuple[int, int]:
        sd = np.full(cells.n_pairs, 100.0)
        start, fits = choose.starting(replace(estimates, n_rows=n_rows, cells=cells, pair_sd=sd))
        return start.components, fits

    assert started(10_000, schema.cells) == (150, 10)
    assert started(3_000_000, schema.cells) == (257, 6)
    assert started(30_000_000, schema.cells) == (800, 3)
    # Nothing jumps: with more rows by a tenth, so less noise, there are as many more components at most.
    found = [started(int(1_000_000 * 1.1**step), schema.cells) for step in range(25)]
    assert found == sorted(found, key=lambda each: (each[0], -each[1]))
    assert all(after[0] <= 1.1 * before[0] + 1 and before[1] - after[1] <= 2 for before, after in pairwise(found))
    # A step over many levels takes long: fewer components, but never few, and fewer steps.
    assert started(10**11, Cells([2_000, 2_000])) == (150, 10)
    wide = Cells([2] * 3_000)
    slow = replace(estimates, cells=wide, pair_sd=np.full(wide.n_pairs, 100.0))
    limits = [choose.step_limit(replace(estimates, n_rows=n), Start()) for n in (10_000, 100_000_000)]
    limits += [choose.step_limit(slow, Start(components=number)) for number in (2_000, 100_000)]
    assert limits[:2] + limits[3:] == [1_200, 4_800, 100]
    assert 100 <= limits[2] < 600
