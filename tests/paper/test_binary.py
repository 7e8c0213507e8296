from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.paper.estimate import Probabilities, fit_binary
from sklar.paper.gaussian import BinaryCopula
from sklar.public.schema import Attribute, Schema
from tests.draw.test_blocks import drawn as draw
from tests.draw.test_blocks import pair_frequencies
from tests.fitting.test_denoise import schema_of

SCHEMA = schema_of(4, 3, 2)
CELLS = SCHEMA.cells


def probabilities(*, rare: bool = False) -> Probabilities:
    """A table with real dependence, as exact probabilities."""
    a = np.array([0.4, 0.3, 0.2999, 0.0001]) if rare else np.array([0.4, 0.3, 0.2, 0.1])
    given_a = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    given_b = np.array([0.2, 0.5, 0.7])
    joint = a[:, None] * given_a
    full = joint[:, :, None] * np.stack([1 - given_b, given_b], axis=1)[None]
    d = SCHEMA.n_levels
    pairs = np.zeros((d, d))
    pairs[0:4, 4:7] = joint
    pairs[0:4, 7:9] = full.sum(axis=1)
    pairs[4:7, 7:9] = full.sum(axis=0)
    levels = np.concatenate([a, joint.sum(axis=0), full.sum(axis=(0, 1))])
    return Probabilities(cells=CELLS, levels=levels, pairs=CELLS.flat(pairs))


def test_records_are_valid_and_hold_the_margins() -> None:
    wanted = probabilities()
    codes = draw(fit_binary(wanted, SCHEMA, dummies=False, weighted=True), 100_000, 1)
    assert ((codes >= 0) & (codes < SCHEMA.sizes[:, None])).all()
    pairs = pair_frequencies(SCHEMA, codes)
    # Settled blocks: far below the sampling error of independent draws, 0.0016.
    np.testing.assert_allclose(np.diag(pairs), wanted.levels, atol=0.0008)
    # The copula's own limits show in the pairs, but it must be much closer than independence.
    independent = np.abs(CELLS.flat(np.outer(wanted.levels, wanted.levels)) - wanted.pairs).mean()
    assert np.abs(CELLS.flat(pairs) - wanted.pairs).mean() < 0.6 * independent


def test_dummies_follow_the_paper() -> None:
    wanted = probabilities()
    dummies = draw(fit_binary(wanted, SCHEMA, dummies=True, weighted=False), 200_000, 2)
    assert dummies.dtype == np.uint8
    assert dummies.max() == 1
    np.testing.assert_allclose(dummies.mean(axis=1), wanted.levels, atol=0.006)
    pairs = dummies.astype(float) @ dummies.T.astype(float) / dummies.shape[1]
    independent = np.abs(CELLS.flat(np.outer(wanted.levels, wanted.levels)) - wanted.pairs).mean()
    assert np.abs(CELLS.flat(pairs) - wanted.pairs).mean() < 0.6 * independent
    # And may be inconsistent: some rows have no level of an attribute, some several.
    assert set(np.unique(dummies[:4].sum(axis=0))) >= {0, 1, 2}


def test_dummies_have_the_right_pairs_when_nothing_needs_repair() -> None:
    """Two booleans given as one level each would be a plain bivariate normal: the copula is exact there."""
    schema = Schema(
        name="t",
        attributes=tuple(Attribute(name=name, kind="categorical", values=("x",), other=False) for name in "ab"),
    )
    levels = np.array([0.3, 0.6])
    wanted = Probabilities(cells=schema.cells, levels=levels, pairs=np.array([0.25]))
    copula = fit_binary(wanted, schema, dummies=True, weighted=False)
    assert copula.repairs.negative_eigenvalues == 0
    dummies = draw(copula, 400_000, 3)
    # Five sampling errors.
    assert (dummies[0] & dummies[1]).mean() == pytest.approx(0.25, abs=0.0035)


def booleans(share: NDArray[np.float64], both: NDArray[np.float64]) -> BinaryCopula:
    """Records of booleans with P(first level) = share, shape (m,), and P(first levels of both), shape (m, m)."""
    schema = Schema(name="t", attributes=tuple(Attribute(name=f"b{i}", kind="boolean") for i in range(share.size)))
    i, j = schema.cells.pairs
    p = both[i, j]
    pairs = np.stack([p, share[i] - p, share[j] - p, 1 - share[i] - share[j] + p], axis=1).ravel()
    levels = np.stack([share, 1 - share], axis=1).ravel()
    wanted = Probabilities(cells=schema.cells, levels=levels, pairs=pairs)
    return fit_binary(wanted, schema, dummies=False, weighted=True)


def test_records_of_booleans_have_exactly_the_wanted_pairs() -> None:
    """A boolean is one normal and one cut point: where nothing needs repair, all two-way tables are exact."""
    share = np.array([0.3, 0.6, 0.1])
    both = np.array([[0.3, 0.25, 0.05], [0.25, 0.6, 0.03], [0.05, 0.03, 0.1]])
    copula = booleans(share, both)
    assert copula.repairs.negative_eigenvalues == 0
    assert not copula.factor[:, 1::2].any()
    assert np.array_equal(copula.factor[1::2], -copula.factor[::2])
    codes = draw(copula, 400_000, 3)
    found = np.array([[np.mean((codes[i] == 0) & (codes[j] == 0)) for j in range(3)] for i in range(3)])
    # Six sampling errors: nine tables fail by chance less than once in 10^7.
    assert np.abs(found - both).max() < 6 * 0.5 / np.sqrt(400_000)


def test_a_boolean_that_all_share() -> None:
    share = np.array([0.0, 1.0, 0.5])
    both = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 0.5]])
    codes = draw(booleans(share, both), 20_000, 3)
    assert (codes[0] == 1).all()
    assert (codes[1] == 0).all()
    assert abs(codes[2].mean() - 0.5) < 0.02


def test_a_level_that_nobody_has_is_never_drawn() -> None:
    wanted = probabilities()
    levels, pairs = wanted.levels.copy(), CELLS.square(wanted.pairs)
    levels[2] += levels[3]
    pairs[2] += pairs[3]
    levels[3], pairs[3] = 0.0, 0.0
    nobody = Probabilities(cells=CELLS, levels=levels, pairs=CELLS.flat(pairs))
    codes = draw(fit_binary(nobody, SCHEMA, dummies=False, weighted=True), 50_000, 4)
    assert (codes[0] != 3).all()
    assert np.mean(codes[0] == 2) == pytest.approx(levels[2], abs=0.002)


def test_rare_levels_keep_their_expected_count() -> None:
    wanted = probabilities(rare=True)
    codes = draw(fit_binary(wanted, SCHEMA, dummies=False, weighted=True), 2_000_000, 5)
    # 200 expected; five standard deviations and 15% of bias.
    assert abs(int((codes[0] == 3).sum()) - 200) < 5 * np.sqrt(200) + 30


def test_one_attribute_with_one_level() -> None:
    schema = Schema(name="t", attributes=(Attribute(name="a", kind="categorical", values=("x",)),))
    wanted = Probabilities(cells=schema.cells, levels=np.ones(1), pairs=np.empty(0))
    assert (draw(fit_binary(wanted, schema, dummies=False, weighted=True), 10, 6) == 0).all()


def test_repairs_are_recorded() -> None:
    wanted = probabilities()
    pairs = wanted.pairs.copy()
    CELLS.table(pairs, 0, 1)[0, 0] = 0.9
    copula = fit_binary(replace(wanted, pairs=pairs), SCHEMA, dummies=True, weighted=False)
    assert copula.repairs.clipped_pairs == 1
    assert copula.repairs.negative_eigenvalues > 0
    assert copula.repairs.moved > 0


def test_an_attribute_whose_levels_were_all_clipped_is_drawn_evenly() -> None:
    wanted = probabilities()
    levels, pairs = wanted.levels.copy(), wanted.pairs.copy()
    levels[:4], CELLS.table(pairs, 0, 1)[:], CELLS.table(pairs, 0, 2)[:] = 0.0, 0.0, 0.0
    copula = fit_binary(replace(wanted, levels=levels, pairs=pairs), SCHEMA, dummies=False, weighted=False)
    assert copula.repairs.empty_attributes == 1
    np.testing.assert_allclose(np.diag(pair_frequencies(SCHEMA, draw(copula, 40_000, 9)))[:4], 0.25, atol=0.002)


def test_records_are_distributed_as_the_largest_exceedance() -> None:
    """Drawing differences must give what drawing every Y gives, with plain NumPy here."""
    copula = fit_binary(probabilities(), SCHEMA, dummies=False, weighted=True)
    rows = 400_000
    pairs = pair_frequencies(SCHEMA, draw(copula, rows, 11))
    latent = copula.factor.astype(float) @ np.random.default_rng(1).standard_normal((SCHEMA.n_levels, rows))
    exceedance = latent - copula.cuts[:, None]
    first, offsets = SCHEMA.offsets[:-1], SCHEMA.offsets
    codes = np.stack([exceedance[a:b].argmax(axis=0) for a, b in zip(first, offsets[1:], strict=True)])
    expected = pair_frequencies(SCHEMA, codes)
    # Six standard errors of a difference of two samples, 2e-9 each, and the little that settling moves.
    sd = np.sqrt(2 * expected * (1 - expected) / rows)
    assert (np.abs(pairs - expected) < 6 * sd + 0.002).all()


def test_attributes_with_more_levels_than_a_byte_holds() -> None:
    schema = Schema(
        name="t",
        attributes=(Attribute(name="a", kind="integer", edges=tuple(range(301))), Attribute(name="b", kind="boolean")),
    )
    levels = np.concatenate([np.full(300, 1 / 300), [0.25, 0.75]])
    pairs = np.outer(levels[:300], levels[300:]).ravel()
    wanted = Probabilities(cells=schema.cells, levels=levels, pairs=pairs)
    codes = draw(fit_binary(wanted, schema, dummies=False, weighted=True), 60_000, 1)
    # 200 expected of each: seven standard deviations, 1e-12 for each of 300 levels.
    assert np.abs(np.bincount(codes[0], minlength=300) - 200).max() < 7 * np.sqrt(200)
    assert codes[1].mean() == pytest.approx(0.75, abs=0.002)


def test_a_damaged_model_without_a_level_to_draw_draws_the_first() -> None:
    copula = fit_binary(probabilities(), SCHEMA, dummies=False, weighted=True)
    cuts = copula.cuts.copy()
    cuts[:4] = np.nan
    assert not draw(replace(copula, cuts=cuts), 100, 1)[0].any()
