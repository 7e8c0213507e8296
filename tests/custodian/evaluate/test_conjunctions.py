"""Queries against a brute-force count, on records and on dummies."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklar.custodian.evaluate import answer, choose_triples, conjunctions
from sklar.errors import DataError
from sklar.files.write import write_frames
from sklar.public.schema import Attribute, Schema
from tests.custodian.evaluate.tables import SCHEMA, as_dummies, brute_force, codes, dummies, dummy_matrix, records

NOT_BITS = "column 'b=true' of a table of dummies must hold 0 or 1 in every row"
WIDE = Schema(name="wide", attributes=tuple(Attribute(name=f"x{j}", kind="boolean") for j in range(9)))


def listed(asked: conjunctions.TripleQueries) -> list[tuple[int, int, int]]:
    """The triples in the order of their layout, written out from its definition."""
    levels = [range(*ends) for ends in pairwise(asked.schema.offsets.tolist())]
    return [triple for three in combinations(levels, 3) for triple in product(*three)]


def check(found: conjunctions.Answers, matrix: np.ndarray) -> None:
    schema, asked = found.schema, found.asked
    assert found.n_rows == matrix.shape[1]
    assert found.one_way.tolist() == matrix.sum(axis=1).tolist()
    for (a, b), count in brute_force(matrix, 2, schema).items():
        assert schema.cells.square(found.two_way)[a, b] == count
    triples = brute_force(matrix, 3, schema)
    asked_for = listed(asked) if asked.listed is None else [tuple(row) for row in asked.listed.tolist()]
    assert found.triples.tolist() == [triples[levels] for levels in asked_for]


@pytest.fixture(params=[0, 1e9], ids=["compiled", "plain"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of counting records."""
    monkeypatch.setattr("sklar.rows.count._PLAIN_WORK", request.param)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("max_triples", [10_000, 0], ids=["all triples", "sampled triples"])
@pytest.mark.parametrize("form", ["records", "dummies"])
def test_answers_are_those_of_a_brute_force_count(form: str, max_triples: int) -> None:
    asked = choose_triples(SCHEMA, max_triples=max_triples, sampled=300)
    found = answer(records(157) if form == "records" else dummies(157), SCHEMA, asked)
    assert (found.form, repr(found)) == (form, object.__repr__(found))
    check(found, as_dummies(codes(157)) if form == "records" else dummy_matrix(157))


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("max_triples", [10_000, 0])
def test_wide_tables_are_counted_on_bits_and_alike(max_triples: int) -> None:
    drawn = np.random.default_rng(3).integers(-1, 2, (9, 200)).astype(np.int32)
    asked, matrix = choose_triples(WIDE, max_triples=max_triples, sampled=50), as_dummies(drawn, WIDE)
    check(conjunctions.answer_blocks([drawn], WIDE, asked, form="records"), matrix)
    check(conjunctions.answer_blocks([matrix], WIDE, asked, form="dummies"), matrix)


@pytest.mark.usefixtures("_either_way")
def test_rows_in_no_cell_count_nowhere_and_pieces_of_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjunctions, "_MAX_CELLS", 64 * SCHEMA.n_levels)
    drawn = codes(301)
    drawn[np.random.default_rng(1).random(drawn.shape) < 0.2] = -1
    blocks = np.split(drawn, [7, 200], axis=1)
    found = conjunctions.answer_blocks(blocks, SCHEMA, choose_triples(SCHEMA), form="records")
    check(found, as_dummies(drawn))
    assert found.valid_rows == int((drawn >= 0).all(axis=0).sum()) < 301


@pytest.mark.parametrize("form", ["records", "dummies"])
def test_files_of_both_forms_are_read(tmp_path: Path, form: str) -> None:
    table, matrix = (records(60), as_dummies(codes(60))) if form == "records" else (dummies(60), dummy_matrix(60))
    write_frames(tmp_path / "t.csv", table.schema, [table], SCHEMA if form == "records" else None)
    check(answer(tmp_path / "t.csv", SCHEMA, choose_triples(SCHEMA)), matrix)
    for kind in (bool, np.float64) if form == "dummies" else ():
        columns = {name: row.astype(kind) for name, row in zip(SCHEMA.dummy_names, matrix, strict=True)}
        check(answer(pl.DataFrame(columns), SCHEMA, choose_triples(SCHEMA)), matrix)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        *(
            (pl.DataFrame({name: [0, 1] for name in SCHEMA.dummy_names} | {"b=true": bad}), NOT_BITS)
            for bad in ([0, 2], [1, None], ["0", "yes"])
        ),
        (pl.DataFrame({"a": ["x"]}), "has no column for 'b', 'c', 'd'"),
        (records(5).slice(0, 0), "the table has no rows"),
    ],
)
def test_tables_that_cannot_be_counted_are_refused(table: pl.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        answer(table, SCHEMA, choose_triples(SCHEMA))


def test_sampled_triples_are_uniform_and_said() -> None:
    every, asked = choose_triples(SCHEMA), choose_triples(SCHEMA, max_triples=80, sampled=81_000)
    assert every.size == every.in_all == len(brute_force(dummy_matrix(1), 3)) == len(listed(every))
    assert every.stated == "all 81 triples"
    assert asked.stated == "a random sample of 81,000 of 81 triples (seed 2020)"
    assert choose_triples(SCHEMA, max_triples=0, sampled=0).size == 0
    assert asked.listed is not None
    np.testing.assert_array_equal(asked.listed[:40], choose_triples(SCHEMA, max_triples=80, sampled=81_000).listed[:40])  # type: ignore[index]
    assert (np.diff(SCHEMA.cells.attribute_of_level[asked.listed], axis=1) > 0).all()
    _, times = np.unique(asked.listed, axis=0, return_counts=True)
    # 81 cells of 1,000 expected: chi-squared has mean 80 and sd 12.6; the seed is fixed.
    assert times.size == 81
    assert ((times - 1000) ** 2 / 1000).sum() < 150


def test_valid_rows_and_correlations_are_those_of_the_dummies() -> None:
    matrix = dummy_matrix(400)
    matrix[0] = False
    found = conjunctions.answer_blocks([matrix], SCHEMA, choose_triples(SCHEMA), form="dummies")
    levels = [matrix[start:end].sum(axis=0) == 1 for start, end in pairwise(SCHEMA.offsets.tolist())]
    assert found.valid_rows == int(np.all(levels, axis=0).sum()) not in (0, 400)
    # Zero where a dummy never varies.
    with np.errstate(invalid="ignore"):
        expected = SCHEMA.cells.flat(np.asarray(np.nan_to_num(np.corrcoef(matrix))))
    np.testing.assert_allclose(conjunctions.pearson(found), expected, atol=1e-12)


def tally(errors: object) -> conjunctions.Errors:
    """The distribution of these errors."""
    return conjunctions.absolute_errors(np.asarray(errors), np.zeros_like(errors))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.sampled_from(conjunctions.PERCENTS), st.booleans())
def test_best_is_the_sorted_prefix(values: list[int], percent: int, whole: bool) -> None:
    errors = np.array(values) if whole else np.array(values) + 0.25
    kept = np.sort(errors)[: -(-len(values) * percent // 100)]
    best = tally(errors).best(percent)
    assert (best.queries, best.maximum) == (kept.size, kept.max())
    assert best.average == pytest.approx(kept.mean())


@pytest.mark.parametrize("chunk", [1, 2, 1 << 22])
def test_errors_are_absolute_scaled_and_selected(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(conjunctions, "_CHUNK", chunk)
    true, given_ = np.array([10, 0, 5, 0], dtype=np.int32), np.array([4, 1, 5, 1], dtype=np.int32)
    errors, none = conjunctions.absolute_errors(true, given_), tally([])
    assert (errors.values.tolist(), errors.counts.tolist(), errors.total) == ([0, 1, 6], [1, 2, 1], 8)
    assert conjunctions.absolute_errors(true, given_, factor=2.0).values.tolist() == [2, 5]
    assert conjunctions.absolute_errors(true, given_, where=true > 0).values.tolist() == [0, 6]
    assert (none.size, tuple(none.best(95)), none.cdf()[0].size) == (0, (95, 0, 0.0, 0.0), 0)


def test_a_cdf_is_exact_where_it_stands() -> None:
    at, share = tally([0, 0, 1, 3]).cdf()
    assert (at.tolist(), share.tolist()) == ([0, 1, 3], [0.5, 0.75, 1.0])
    values = np.random.default_rng(0).exponential(100, 5_000)
    at, share = tally(values).cdf(50)
    assert 25 <= at.size <= 51
    assert at.tolist() == sorted(set(at.tolist()))
    assert share.tolist() == [np.mean(values <= x) for x in at]
