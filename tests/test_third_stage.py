"""A release with a third stage, from rows to a model file, its verification and its answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import sklar
from sklar.answer.query import answer
from sklar.answer.report import publishable
from sklar.answer.report.publish import together
from sklar.budget.certificate import SCORES, Measured
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.budget.plan import plan_release, plan_scores
from sklar.errors import DataError, ModelError
from sklar.files.archive import load
from sklar.files.model import Model, fit_tables
from sklar.kernel.queries import Block, Distances, Tables
from sklar.kernel.theorems import NOTHING, Budget
from sklar.public.schema import Attribute, Schema
from sklar.public.settings import Person
from sklar.trust.audit.inventions import frame_of
from sklar.trust.verify import attempt, verify
from sklar.trust.verify.refit import replanned
from tests.trust.forge import forged

SIZES, ROWS = (4, 5, 3, 12), 4_000


def schema_of(names: Sequence[str], sizes: Sequence[int]) -> Schema:
    """Integers from 0, one level each."""
    edges = (tuple(range(size + 1)) for size in sizes)
    attributes = (Attribute(name=name, kind="integer", edges=each) for name, each in zip(names, edges, strict=True))
    return Schema(name="audit", attributes=tuple(attributes))


SCHEMA = schema_of(("a0", "a1", "a2", "a3"), SIZES)
BUDGET = Budget(epsilon=4.0)


def rows(number: int = ROWS, seed: int = 0) -> NDArray[np.int32]:
    """The third attribute is a function of the first two, but for some rows; the fourth depends on all."""
    generator = np.random.default_rng(seed)
    one, two = generator.integers(0, 4, number), generator.integers(0, 5, number)
    three = np.where(generator.random(number) < 0.8, (one + two) % 3, generator.integers(0, 3, number))
    four = (2 * one + three * two + generator.integers(0, 3, number)) % 12
    return np.stack([one, two, three, four]).astype(np.int32)


@pytest.fixture(scope="module")
def model() -> Model:
    return sklar.fit(frame_of(SCHEMA, rows()), SCHEMA, BUDGET)


@pytest.fixture(scope="module")
def saved(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("third") / "m.sklar"
    model.save(path)
    return path


def chosen(measured: Measured) -> Block | None:
    """The three-way tables that were measured."""
    return next((b for b in measured.blocks if isinstance(b.query, Tables) and b.query.order == 3), None)


def both(measured: Measured) -> tuple[Block, Tables, Block]:
    """Those tables with their query, and the distances of all three-way tables."""
    tables = chosen(measured)
    assert tables is not None
    assert isinstance(tables.query, Tables)
    return tables, tables.query, next(block for block in measured.blocks if isinstance(block.query, Distances))


def test_three_way_tables_are_measured_within_the_budget_and_certified(model: Model) -> None:
    tables, _, distances = both(model.measured)
    stages = plan_release(SCHEMA.cells, BUDGET, Method(), n_rows=ROWS)
    spend = sum((block.spend(BUDGET) for block in model.measured.blocks), NOTHING)
    assert 0.99 * BUDGET.epsilon < BUDGET.spent(spend) <= BUDGET.spent(stages.spend) <= BUDGET.epsilon
    third = [entry for entry in model.certificate.measurements if entry.order == 3]
    assert {entry.stage for entry in third} == {3}
    assert sum(entry.tables for entry in third) == tables.scales.size >= 1
    assert third[0].what == "three-way tables over coarse levels"
    assert any("stage 3" in line and "three-way tables" in line for line in model.summary())
    planned = plan_scores(SCHEMA.cells, ROWS, stages)
    assert planned is not None
    assert distances.scales.tolist() == [planned[0][0].scale]
    (entry,) = [entry for entry in model.certificate.measurements if entry.order == SCORES + 3]
    assert (entry.stage, entry.tables, entry.scale, entry.what) == (
        3,
        4,
        planned[0][0].scale,
        "scores of three-way tables",
    )
    # One number: it moves as far in L1 as in L2.
    assert entry.sensitivity_l1 == entry.sensitivity_l2 == entry.reach == 22.0


def test_scores_find_what_no_pair_shows() -> None:
    """The sum of two even columns, modulo 3: all pairs are independent, and no fit of them disagrees about anything."""
    generator = np.random.default_rng(5)
    codes = generator.integers(0, 3, (4, ROWS)).astype(np.int32)
    codes[2] = (codes[0] + codes[1]) % 3
    schema = schema_of("abcd", (3, 3, 3, 3))
    model = sklar.fit(frame_of(schema, codes), schema, BUDGET)
    _, query, distances = both(model.measured)
    # The one that is not zero is 1,000 rows from independence, 40 sds of its noise.
    assert distances.values[0] > 10 * distances.scales[0]
    assert [0, 1, 2] in query.members.tolist()
    assert error(model, codes, 0, 1, 2) < 0.2


def error(model: Model, codes: NDArray[np.int32], *triple: int) -> float:
    """The total variation of a three-way table."""
    components, offsets = model.copula.components(), model.measured_schema.offsets
    assert components is not None
    parts = [components[:, offsets[i] : offsets[i + 1]].astype(np.float64) for i in triple]
    table = np.einsum("ci,cj,ck->ijk", *parts) / len(components)
    real = np.zeros_like(table)
    np.add.at(real, tuple(codes[list(triple)]), 1 / codes.shape[1])
    return float(np.abs(table - real).sum()) / 2


def test_the_model_knows_what_pairs_do_not(model: Model) -> None:
    tables = chosen(model.measured)
    pairs = tuple(block for block in model.measured.blocks if block is not tables)
    without = fit_tables(replace(model.measured, blocks=pairs))
    errors = [max(error(each, rows(), 0, 1, 2), error(each, rows(), 0, 1, 3)) for each in (model, without)]
    # Far apart: the factor is two to ten in draw after draw.
    assert errors[0] < 0.8 * errors[1]


def test_the_noise_is_that_of_the_certificate(model: Model) -> None:
    tables, query, _ = both(model.measured)
    z = (tables.values - query.count(rows())) / np.repeat(tables.scales, query.sizes)
    # Over at least 60 cells the mean square is known to 18%: six of them fail once in 10^8.
    assert z.size >= 60
    assert 0.2 < np.mean(z**2) < 2.5


def test_verify_passes_it_with_a_refit(saved: Path) -> None:
    found = verify(saved, refit=True)
    assert found.passed, found.lines()
    plan = next(check for check in found.checks if check.name == "plan")
    assert "100% are those that this machine would choose" in plan.detail


# The blocks of the file: all tables of one attribute, of two, of two again, chosen ones of three (and perhaps of four,
# as noise has it), distances of three, then of four.
_THIRD, _SIZES = "block3", (4, 6, 6)


def _place(document: dict[str, Any], order: int) -> int:
    """The number of the block of chosen tables of this order, or of scores."""
    query, of = ("distances", order - SCORES) if order > SCORES else ("tables", order)
    blocks = [(entry["query"], entry.get("order", 3)) for entry in document["blocks"]]
    return blocks.index((query, of), 3)


def _exact(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    sets, coarse = arrays["block3_sets"].reshape(-1, 3), arrays["block3_coarse"]
    arrays[_THIRD] = Tables(cells=SCHEMA.cells, order=3, sets=sets, coarse=coarse).count(rows())


def _rescaled(factor: float, order: int) -> Any:
    """The scales of one order stated, and in the arrays, as other ones."""

    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        scales = arrays["scales"] = arrays["scales"].copy()
        place, entries = _place(document, order), document["blocks"][3:]
        sizes = [*_SIZES, *(1 if entry["query"] == "distances" else entry["sets"] for entry in entries)]
        scales[sum(sizes[:place]) : sum(sizes[: place + 1])] *= factor
        for entry in document["certificate"]["measurements"]:
            entry["scale"] *= factor if entry["order"] == order else 1

    return change


def _unstated(document: dict[str, Any], order: int) -> None:
    entries = document["certificate"]["measurements"]
    entries[:] = [entry for entry in entries if entry["order"] != order]


def _unscored(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    last = len(document["blocks"]) - 1
    document["blocks"].pop()
    del arrays[f"block{last}"], arrays[f"block{last}_coarse"], arrays[f"block{last}_sets"]
    arrays["scales"] = arrays["scales"][:-1]


@pytest.mark.parametrize(("change", "check"), [
    (_exact, "noise"), (_rescaled(64, 3), "noise"), (_rescaled(1 / 4, 3), "theorem"),
    (lambda document, arrays: _unstated(document, 3), "measurements"),
    (lambda document, arrays: _unstated(document, SCORES + 4), "measurements"), (_unscored, "measurements"),
    (_rescaled(1 / 8, SCORES + 3), "theorem"), (_rescaled(1 / 8, SCORES + 4), "theorem"),
])  # fmt: skip
def test_verify_finds_forged_tables(saved: Path, tmp_path: Path, change: Any, check: str) -> None:
    found = verify(forged(saved, change, tmp_path / "forged.sklar"))
    assert check in {each.name for each in found.checks if not each.passed}


def test_a_refit_finds_scores_at_another_scale_and_other_levels(saved: Path, tmp_path: Path) -> None:
    """Cheaper scores fit the budget, and no other table tells their noise: the plan does."""
    path = forged(saved, _rescaled(2.0, SCORES + 3), tmp_path / "forged.sklar")
    assert verify(path).passed
    found = attempt("plan", replanned, load(path))
    assert not found.passed
    assert found.detail.startswith("the scores of three-way tables do not have the scale that this Sklar plans")

    def recoarsened(_document: dict[str, Any], arrays: dict[str, Any]) -> None:
        # The same tables over other levels: which levels is then somebody's knowledge.
        arrays["block3_coarse"][-12:] = arrays["block3_coarse"][-12:][::-1].copy()

    assert not attempt("plan", replanned, load(forged(saved, recoarsened, tmp_path / "forged.sklar"))).passed


@pytest.mark.parametrize(("change", "message"), [
    (lambda document, arrays: document["blocks"][3].update(sets=0), "sets must be a whole number"),
    (lambda document, arrays: arrays["block3_coarse"].__setitem__(0, 9), "belong to a coarse level"),
    (lambda document, arrays: arrays["block3_sets"].__setitem__(0, 3), "must name attributes of the schema"),
    (lambda document, arrays: arrays[_THIRD].__setitem__(0, 2**60), r"at most 2\*\*53 in size"),
    (lambda document, arrays: arrays["scales"].__setitem__(-2, 0.0), "can be drawn exactly"),
    (lambda document, arrays: document["blocks"].pop(), "scales.npy|block[56]|'scales'"),
    (lambda document, arrays: arrays[f"block{_place(document, SCORES + 4)}"].__setitem__(0, 2**60),
        r"at most 2\*\*53 in size"),
])  # fmt: skip
def test_a_damaged_file_is_refused(saved: Path, tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(forged(saved, change, tmp_path / "damaged.sklar"))


def test_answers_over_three_attributes_have_error_bars_where_they_were_measured(model: Model) -> None:
    codes = rows()
    tables, query, _ = both(model.measured)
    found = answer(model, "a0 = 1 and a1 = 2 and a2 = 0")
    # Pairs say a part of the cell, too: the answer is more precise than the table of three by itself.
    scale = float(tables.scales[query.members.tolist().index([0, 1, 2])])
    assert found.estimate is not None
    assert found.standard_error is not None
    assert 0 < found.standard_error < scale
    assert not found.bounds
    real = np.count_nonzero((codes[0] == 1) & (codes[1] == 2) & (codes[2] == 0))
    assert abs(found.estimate - real) < 8 * scale
    assert found.measured == pytest.approx(1)
    # In any order of the question; and turned around.
    assert answer(model, "a2 = 0 and a0 = 1 and a1 = 2").estimate == pytest.approx(found.estimate)
    most = answer(model, "not (a0 = 1 and a1 = 2 and a2 = 0)")
    assert most.estimate == pytest.approx(ROWS - found.estimate)
    # Without a table of three the pairs speak of a part of it alone.
    others = tuple(block for block in model.measured.blocks if block is not tables)
    without = replace(model, measured=replace(model.measured, blocks=others))
    assert answer(without, "a0 = 1 and a1 = 2 and a2 = 0").measured < 0.95


def test_what_can_be_read_once_only_has_no_third_stage() -> None:
    table = frame_of(SCHEMA, rows()).to_arrow()
    once = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert chosen(sklar.measure(once, SCHEMA, BUDGET)) is None
    assert chosen(sklar.measure(table, SCHEMA, BUDGET, method="binary")) is None


def test_people_and_add_remove_have_a_third_stage_too() -> None:
    people, many = replace(SCHEMA, person=Person(column="id", count="rows", rows_per_person=2)), 30_000
    frame = frame_of(SCHEMA, rows(many)).with_columns(id=pl.int_range(many) // 3)
    measured = sklar.measure(frame, people, replace(BUDGET, neighbors="add-remove"))
    tables, query, _ = both(measured)
    # Two of every three rows count, in each pass.
    totals = np.array([part.sum() for part in tables.by_scale()])
    assert (np.abs(totals - 2 * many / 3) < 7 * tables.scales * query.sizes**0.5).all()
    moved = {entry.order: entry.sensitivity_l2 for entry in measured.certificate.measurements if entry.order >= 3}
    assert moved | {4: 2.0} == {3: 2.0, 4: 2.0, SCORES + 3: 31.0, SCORES + 4: 31.0}


def test_a_file_that_changes_between_passes_is_told_to_have_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = frame_of(SCHEMA, rows())
    frame.write_parquet(tmp_path / "t.parquet")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("audit", epsilon=4.0, delta=BUDGET.delta)
    charge = Ledger.charge

    def changed(self: Any, *given: Any, **named: Any) -> Any:
        frame[1:].write_parquet(tmp_path / "t.parquet")
        return charge(self, *given, **named)

    monkeypatch.setattr(Ledger, "charge", changed)
    with pytest.raises(DataError, match="the table changed while it was read"):
        sklar.measure(tmp_path / "t.parquet", SCHEMA, BUDGET, ledger=ledger)
    assert ledger.history()[-1].kind == "charge"


def test_the_report_says_where_the_cost_went(model: Model) -> None:
    page = publishable(model)
    assert re.search("Part of that cost went to tables of three( or four)? attributes, over coarser levels", page)
    assert "or that the scores showed them to miss." in page
    assert "Part of that cost went to <em>noisy</em> scores" in page
    # Scores are of four.
    assert together(model.certificate) == "four"
