from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sklar.draw.blocks import BLOCK_ROWS, blocks
from sklar.fitting.binary import fit_binary
from sklar.fitting.margins import Probabilities
from sklar.machine.threads import using
from sklar.public.schema import Attribute, Schema
from tests.fitting.test_binary import SCHEMA, draw, frequencies, probabilities


def test_a_block_depends_on_seed_and_number_alone() -> None:
    copula = fit_binary(probabilities(), SCHEMA, dummies=False, weighted=True)
    long = draw(copula, 2 * BLOCK_ROWS + 5, 7)
    assert (draw(copula, 2 * BLOCK_ROWS, 7)[:, :BLOCK_ROWS] == long[:, :BLOCK_ROWS]).all()
    assert (long[:, :BLOCK_ROWS] != long[:, BLOCK_ROWS : 2 * BLOCK_ROWS]).any()
    assert (draw(copula, BLOCK_ROWS, 8) != long[:, :BLOCK_ROWS]).any()


def test_records_are_distributed_as_the_largest_exceedance() -> None:
    """Drawing differences must give what drawing every Y gives, with plain NumPy here."""
    copula = fit_binary(probabilities(), SCHEMA, dummies=False, weighted=True)
    rows = 400_000
    _, pairs = frequencies(draw(copula, rows, 11))
    latent = copula.factor.astype(float) @ np.random.default_rng(1).standard_normal((SCHEMA.n_levels, rows))
    exceedance = latent - copula.cuts[:, None]
    first, offsets = SCHEMA.offsets[:-1], SCHEMA.offsets
    codes = np.stack([exceedance[a:b].argmax(axis=0) for a, b in zip(first, offsets[1:], strict=True)])
    _, expected = frequencies(codes.astype(np.int32))
    # Six standard errors of a difference of two samples, 2e-9 each, and the little that settling moves.
    sd = np.sqrt(2 * expected * (1 - expected) / rows)
    assert (np.abs(pairs - expected) < 6 * sd + 0.002).all()


@pytest.mark.parametrize("dummies", [False, True])
def test_rows_are_the_same_for_any_number_of_threads_and_any_order_of_blocks(dummies: bool) -> None:
    copula = fit_binary(probabilities(), SCHEMA, dummies=dummies, weighted=True)
    rows = 3 * BLOCK_ROWS + 5
    drawn = []
    for threads in (1, 2, 5):
        with using(threads):
            drawn.append(draw(copula, rows, 7))
    sampler = copula.sampler()
    apart = {number: sampler.draw(7, number, size) for number, size in reversed(list(blocks(rows, sampler.block_rows)))}
    drawn.append(np.concatenate([apart[number] for number in sorted(apart)], axis=1))
    assert all(np.array_equal(drawn[0], other) for other in drawn[1:])


def test_attributes_with_more_levels_than_a_byte_holds() -> None:
    schema = Schema(
        name="t",
        attributes=(
            Attribute(name="a", kind="integer", edges=tuple(range(301))),
            Attribute(name="b", kind="boolean"),
        ),
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
