"""Noise as it leaves through the door: on every cell, of its own, with the stated law, in every stage and search.

Thousands of cells of one release, so that each test is cheap. False alarms: below one in a million a test, as normal
deviations of 5.5 and more. What each would miss is stated where it is not certain.
"""

from __future__ import annotations

import math
import os

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sklar.budget.method import PAPER
from sklar.kernel import noise as sampler
from sklar.kernel.cells import Cells
from sklar.kernel.noise import discrete_gaussian
from sklar.kernel.queries import Common, Tables
from sklar.kernel.theorems import Budget, chance_of_one
from sklar.kernel.vault import Vault
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.rows.engines import Measurer
from tests.guarantees.people import BASE

SIDE, SCALE = 60, 16.0
DEVIATIONS = 5.5
AMPLE = Budget(epsilon=1e4)


def two_stages(counts: NDArray[np.int64], side: int = SIDE) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The noise of two-way cells in two stages, over its scale."""
    vault, query = Vault(AMPLE, threads=2), Tables(cells=Cells([side, side]), order=2)
    vault.reserve(AMPLE.tables(np.full(2, SCALE)))
    first, second = (vault.measure(query, counts, [SCALE]).values - counts for _ in range(2))
    return first / SCALE, second / SCALE


@pytest.fixture(scope="module")
def noise() -> dict[str, NDArray[np.float64]]:
    """Of empty cells, of cells of a few rows, and of cells of thousands."""
    counts = np.tile(np.array([0, 0, 3, 5_000]), SIDE * SIDE // 4)
    first, second = two_stages(counts)
    both = np.concatenate([first, second])
    twice = np.concatenate([counts, counts])
    return {"first": first, "second": second, "all": both} | {
        name: both[twice == count] for name, count in (("empty", 0), ("few", 3), ("many", 5_000))
    }


@pytest.mark.parametrize("which", ["first", "second", "empty", "few", "many"])
def test_every_kind_of_cell_has_noise_of_the_stated_size(noise: dict[str, NDArray[np.float64]], which: str) -> None:
    """Sees 4/5 of the noise, and noise that leans by a fifth of its scale."""
    part = noise[which]
    assert abs(np.mean(part**2) - 1) < DEVIATIONS * math.sqrt(2 / part.size)
    assert abs(np.mean(part)) < DEVIATIONS / math.sqrt(part.size)
    # A kurtosis of 3 has the deviation sqrt(96 / n), with a longer tail to the right.
    assert abs(np.mean(part**4) - 3) < 1.5 * DEVIATIONS * math.sqrt(96 / part.size)


def test_noise_reaches_far_and_is_odd_as_often_as_even(noise: dict[str, NDArray[np.float64]]) -> None:
    part = noise["all"]
    odd = np.rint(part * SCALE) % 2
    assert abs(odd.mean() - 0.5) < DEVIATIONS / 2 / math.sqrt(part.size)
    # 19 of 7,200 are expected beyond 3 deviations: none with a chance of 4e-9.
    assert np.abs(part).max() > 3


def test_cells_and_stages_do_not_share_noise(noise: dict[str, NDArray[np.float64]]) -> None:
    first, second = noise["first"], noise["second"]
    reach = DEVIATIONS / math.sqrt(first.size)
    assert abs(np.corrcoef(first, second)[0, 1]) < reach
    for lag in (1, 2, SIDE):
        assert abs(np.corrcoef(first[lag:], first[:-lag])[0, 1]) < 1.1 * reach


def test_parts_of_a_large_table_and_calls_do_not_share_a_key() -> None:
    """370 x 370 cells are drawn in two parts of 65,536 and the rest: equal parts would be equal under one key."""
    first, second = two_stages(np.zeros(370 * 370, dtype=np.int64), side=370)
    part = 65_536
    assert abs(np.corrcoef(first[:part], first[part : 2 * part])[0, 1]) < DEVIATIONS / math.sqrt(part)
    assert abs(np.corrcoef(first, second)[0, 1]) < DEVIATIONS / math.sqrt(first.size)
    calls = [discrete_gaussian(np.array([1000.0]), np.array([50])).tolist() for _ in range(2)]
    assert calls[0] != calls[1]


def test_keys_come_from_the_operating_system() -> None:
    """A seeded source would do as well by all other tests of one process."""
    assert vars(sampler)["urandom"] is os.urandom


def test_the_number_of_rows_is_noised_under_add_remove() -> None:
    """Forty releases: the noise on the total is never the same for all, and its size is as stated."""
    schema = Schema.from_toml(BASE)
    table = pl.DataFrame({"age": [30] * 500, "city": ["Bern"] * 500})
    budget = Budget(epsilon=1.0, neighbors="add-remove")
    totals = [measure(table, schema, budget, method=PAPER).blocks[0] for _ in range(40)]
    scores = np.array([(block.values[0] - 500) / block.scales[0] for block in totals])
    # A chi-square of 40: beyond these with a chance of 3e-7 each.
    assert 9 < np.sum(scores**2) < 100


def test_common_categories_have_noise_and_reach_the_threshold() -> None:
    """Texts of many rows and texts at the threshold: a threshold that is one too low lets 2% of these pass below it."""
    vault, threshold = Vault(AMPLE), 120
    exact = {f"many{i}": 5_000 for i in range(2_000)} | {f"edge{i}": threshold for i in range(2_000)}
    query = Common(about="text", threshold=threshold)
    vault.reserve(query.bound(np.array([SCALE]), AMPLE))
    block = vault.measure(query, exact, [SCALE])
    found = dict(zip(block.keys or (), block.values.tolist(), strict=True))
    assert min(found.values()) == threshold
    many = np.array([found[f"many{i}"] - 5_000 for i in range(2_000)]) / SCALE
    assert abs(np.mean(many**2) - 1) < DEVIATIONS * math.sqrt(2 / many.size)
    listed = sum(text.startswith("edge") for text in found)
    at_all = 0.5 + 0.5 / (SCALE * math.sqrt(2 * math.pi))
    assert abs(listed - 2_000 * at_all) < DEVIATIONS * math.sqrt(500)
    assert chance_of_one(SCALE, threshold) < 1e-12


def test_every_table_of_a_search_has_noise() -> None:
    """Answers of two searches of the same rows: no table of theirs is the same twice."""
    sought = Attribute(name="x", kind="integer", edges=(0, 5_000), domain="private", at_most=5)
    schema = Schema(name="t", attributes=(sought,))
    table = pl.DataFrame({"x": np.arange(4_000)})
    budget = Budget(epsilon=1.0)
    found = []
    for measurer in (Measurer.open(table, schema, budget) for _ in range(2)):
        measurer.count_values()
        found.append(measurer.search()[1])
    assert len(found[0]) > 0
    for one, two in zip(*found, strict=True):
        assert one.values.tolist() != two.values.tolist()
