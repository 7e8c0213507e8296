"""Which three-way tables are worth measuring: coarse levels, disagreement, and the choice of scales."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sklar.budget.method import Method
from sklar.budget.plan import plan_release
from sklar.fitting import third
from sklar.fitting.third import MOST_TRIPLES, Disagreement, choose_scales, coarsen, corrected, disagreement
from sklar.kernel.cells import Cells
from sklar.kernel.queries import PARTS, Block, Distances, Tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from tests.fitting.test_threeway import components

SCHEMA = Schema(
    name="t",
    attributes=(
        Attribute(name="age", kind="integer", edges=tuple(range(0, 101, 5)), missing=""),
        Attribute(name="job", kind="categorical", values=tuple("abcdefghijkl")),
        Attribute(name="grade", kind="categorical", values=tuple("abcdefghij"), ordered=True),
        Attribute(name="few", kind="categorical", values=tuple("abc")),
    ),
)


def test_numbers_are_cut_at_equal_masses_and_categories_keep_the_most_common() -> None:
    cells = SCHEMA.cells
    generator = np.random.default_rng(0)
    levels = np.concatenate([generator.dirichlet(np.full(size, 2.0)) for size in cells.sizes])
    coarse = coarsen(SCHEMA, levels, np.full(4, 8))
    age, job, grade, few = (coarse[cells.levels(i)] for i in range(4))
    # Contiguous, from the first to the last, none left out; missing ages are a level of their own.
    assert age[-1] == 7
    assert (np.diff(age[:-1]) >= 0).all()
    assert sorted(set(age.tolist())) == list(range(8))
    masses = np.bincount(age[:-1], weights=levels[:20])
    assert masses.max() < 2.5 / 7 * levels[:20].sum()
    top = np.argsort(-levels[cells.levels(1)])
    assert (job[top[7:]] == 7).all()
    assert sorted(job[top[:7]].tolist()) == list(range(7))
    assert (np.diff(job[np.sort(top[:7])]) > 0).all()
    assert (np.diff(grade) >= 0).all()
    assert sorted(set(grade.tolist())) == list(range(8))
    assert few.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_runs_are_never_empty(seed: int) -> None:
    """Whatever the margins are: all mass in one level, none anywhere, very uneven."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(9, 40))
    schema = Schema(name="t", attributes=(Attribute(name="x", kind="integer", edges=tuple(range(size + 1))),))
    for levels in (generator.dirichlet(np.full(size, 0.05)), np.zeros(size), np.eye(size)[seed % size]):
        coarse = coarsen(schema, levels, np.array([8]))
        assert (np.diff(coarse) >= 0).all()
        assert sorted(set(coarse.tolist())) == list(range(8))


def test_disagreement_is_that_of_centered_tables() -> None:
    cells = Cells([3, 4, 2, 5])
    coarse = np.array([0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 1, 1, 2, 3])
    fits = np.stack([components(cells, 6, seed).T for seed in range(4)])
    asked = Tables(cells=cells, order=3, coarse=coarse)
    seen = disagreement(fits, asked, 1_000_000)
    assert seen.tables.members.tolist() == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    thirds = fits[:, :, 9:].astype(np.float64) @ np.eye(4)[coarse[9:]]
    tables = np.einsum("fci,fcj,fck->fijk", fits[:, :, :3], fits[:, :, 3:7], thirds) / 6
    for axis in (1, 2, 3):
        tables -= tables.mean(axis=axis, keepdims=True)
    apart = tables - tables.mean(axis=0)
    assert seen.variation[1] == pytest.approx(np.abs(apart).sum() / 6, rel=1e-4)
    assert seen.distance[1] == pytest.approx(1e6 * np.sqrt((apart**2).sum() / 3), rel=1e-4)
    # What they predict together, in rows, as three-way tables lie.
    own = seen.reference[asked.offsets[1] : asked.offsets[2]].reshape(3, 4, 4)
    assert seen.reference.shape == (asked.n_cells,)
    assert own == pytest.approx(1e6 * tables.mean(axis=0), abs=1)
    # Fits that agree leave nothing open, and one fit agrees with itself.
    assert disagreement(fits[[0, 0, 0]], asked, 1_000).variation.max() < 1e-6
    assert disagreement(fits[:1], asked, 1_000).distance.max() == 0
    # Of four; and those with a target matter more.
    (four,) = [disagreement(fits, Tables(cells=cells, order=4, coarse=coarse), 1_000_000)]
    table = np.einsum("fci,fcj,fck,fcl->fijkl", fits[:, :, :3], fits[:, :, 3:7], fits[:, :, 7:9], thirds) / 6
    for axis in (1, 2, 3, 4):
        table -= table.mean(axis=axis, keepdims=True)
    rest = table - table.mean(axis=0)
    assert four.distance == pytest.approx(1e6 * np.sqrt((rest**2).sum() / 3), rel=1e-3)
    assert four.reference == pytest.approx(1e6 * table.mean(axis=0).ravel(), abs=1)
    assert disagreement(fits, asked, 9, (3,)).weights.tolist() == [0.25, 0.5, 0.5, 0.5]
    # Without a target those of four count a tenth.
    assert (four.weights.tolist(), disagreement(fits, four.tables, 9, (3,)).weights.tolist()) == ([0.1], [2.0])


def made(number: int, seed: int = 0) -> Disagreement:
    """Of tables of the first attribute, the second and one of the rest, with 1 to 343 dimensions."""
    generator = np.random.default_rng(seed)
    variation = generator.gamma(1.0, 0.01, number)
    cells = Cells([8, 8, *generator.integers(2, 9, number)])
    attributes = np.array([(0, 1, other) for other in range(2, number + 2)])
    coarse = np.concatenate([np.arange(size) for size in cells.sizes])
    triples = Tables(cells=cells, order=3, sets=attributes, coarse=coarse)
    distance, none = variation * 3_000 * generator.uniform(0.5, 1.5, number), np.zeros(triples.n_cells, dtype=np.int64)
    known = {"distance": distance, "reference": none, "weights": np.full(number, 1 / number)}
    return Disagreement(tables=triples, variation=variation, n_rows=20_000, **known)


def test_scales_are_those_of_the_best_trade() -> None:
    """No scale could be moved, and no table added or left out, to make the expected error smaller."""
    seen, price, precision = made(40), 0.01, 50.0
    dimensions = np.prod(seen.tables.shapes - 1, axis=1)
    ((chosen, scales),) = choose_scales([seen], price=price, precision=precision, most_precision=np.inf)
    assert 0 < chosen.size < 40

    def lost(table: int, own: float) -> float:
        square = seen.distance[table] ** 2 / own**2 / dimensions[table] if np.isfinite(own) else 0.0
        return float(seen.variation[table] / np.sqrt(1 + square) / 40 + price * own**-2.0 / precision)

    for table, scale in zip(chosen.tolist(), scales.tolist(), strict=True):
        assert lost(table, scale) <= min(lost(table, scale * 1.03), lost(table, scale / 1.03), lost(table, np.inf))
    for table in set(range(40)) - set(chosen.tolist()):
        assert all(lost(table, np.inf) <= lost(table, scale) for scale in np.geomspace(1, 1e4, 30))


@pytest.mark.parametrize("seed", range(5))
def test_scales_stay_within_what_may_be_taken(seed: int) -> None:
    seen = made(400, seed)
    ((chosen, scales),) = choose_scales([seen], price=1e-6, precision=10.0, most_precision=0.3)
    assert 0 < chosen.size <= MOST_TRIPLES
    assert float(np.sum(scales**-2.0)) <= 0.3
    assert (np.diff(chosen) > 0).all()
    none = replace(seen, variation=np.zeros(400), distance=np.zeros(400))
    assert choose_scales([none], price=0.01, precision=1.0, most_precision=1.0)[0][0].size == 0
    # Of two orders together: the same tables, each where it stands.
    (first, _), (second, own) = choose_scales([none, seen], price=1e-6, precision=10.0, most_precision=0.3)
    assert (first.size, second.tolist()) == (0, chosen.tolist())
    assert own == pytest.approx(scales)


def test_scores_bring_distances_within_two_sds_and_total_variations_along() -> None:
    seen = replace(
        made(5), variation=np.array([0.02, 0.04, 0.03, 0.0, 1e-9]), distance=np.array([100.0, 400.0, 300.0, 0.0, 1e-6])
    )
    flat = np.sqrt(seen.tables.sizes) / (2 * seen.n_rows)
    # In rows: 100, 1,000, -200, 1,000, 1,000, each with noise of 75 rows.
    values = PARTS * np.array([100, 1_000, -200, 1_000, 1_000])
    scores = Block(query=Distances(of=seen.tables, reference=None), scales=np.array([75.0 * PARTS]), values=values)
    found = corrected(seen, scores)
    assert found.distance == pytest.approx([100.0, 850.0, 0.0, 850.0, 850.0])
    assert found.variation[:3] == pytest.approx([0.02, 0.04 * 850 / 400, 0.0])
    # Beside a flat table, for which v = c sqrt(cells) / (2 n): what is taken without a shape is the usual share.
    shaped = [0, 1, 2, 4]
    usual = np.median(seen.variation[shaped] / (seen.distance * flat)[shaped])
    assert found.variation[3:] == pytest.approx(850 * usual * flat[3:])
    # Nothing to learn a shape from: as flat as can be, and never above one.
    bare = replace(seen, variation=np.zeros(5), distance=np.zeros(5))
    assert corrected(bare, scores).variation[3] == pytest.approx(850 * flat[3])
    assert corrected(replace(bare, n_rows=100), scores).variation.max() == 1.0


def test_tables_that_noise_would_drown_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of linked tables leave room for scales of later tables up to a bound; a larger one could not be drawn."""
    seen = made(40)
    cells = seen.tables.cells
    stages = plan_release(cells, Budget(epsilon=1.0), Method(), n_rows=seen.n_rows, again=True)
    most = stages.most_later
    schema: Any = SimpleNamespace(cells=cells)
    asked = (np.array([3, 5, 8]), np.array([most / 2, most, 2 * most]))
    monkeypatch.setattr(third, "choose_scales", lambda *_, **__: [asked])
    distances = np.full(cells.n_pairs, 100.0)
    look = third.Outlook(schema=schema, stages=stages, left=stages, distances=distances, seen=(seen,), scales=())
    ((tables, scales),) = look.wanted([])
    assert tables.members.tolist() == seen.tables.members[[3, 5]].tolist()
    assert scales.tolist() == [most / 2, most]
