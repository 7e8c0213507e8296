"""A release with a third stage, from rows to a model file, its verification and its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import sklar
from sklar import release
from sklar.answer.query import answer
from sklar.budget.certificate import SCORES
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.budget.plan import plan_release, plan_scores
from sklar.errors import DataError, ModelError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.fitting.margins import pool
from sklar.kernel.theorems import Budget, Spend
from sklar.public.schema import Attribute, Schema
from sklar.release import fit_tables, look_for_triples
from sklar.trust.audit.inventions import frame_of
from sklar.trust.verify import verify
from tests.trust.forge import forged, opened

SIZES, ROWS = (4, 5, 3, 12), 4_000
SCHEMA = Schema(
    name="audit",
    attributes=tuple(
        Attribute(name=f"a{index}", kind="integer", edges=tuple(range(size + 1))) for index, size in enumerate(SIZES)
    ),
)
BUDGET = Budget(epsilon=4.0)


def rows(number: int = ROWS, seed: int = 0) -> NDArray[np.int32]:
    """The third attribute is a function of the first two, but for some rows; the fourth depends on all."""
    generator = np.random.default_rng(seed)
    one, two = generator.integers(0, 4, number), generator.integers(0, 5, number)
    three = np.where(generator.random(number) < 0.8, (one + two) % 3, generator.integers(0, 3, number))
    four = (2 * one + three * two + generator.integers(0, 3, number)) % 12
    return np.stack([one, two, three, four]).astype(np.int32)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    folder = tmp_path_factory.mktemp("third")
    ledger = Ledger(folder / "ledger.db")
    ledger.open_account("audit", epsilon=4.0, delta=BUDGET.delta)
    model = sklar.fit(frame_of(SCHEMA, rows()), SCHEMA, BUDGET, ledger=ledger)
    model.save(folder / "m.sklar")
    return model, folder / "m.sklar"


def test_three_way_tables_are_measured_within_the_budget_and_certified(released: tuple[Model, Path]) -> None:
    model, _ = released
    triples = model.measured.triples
    assert triples is not None
    assert len(triples.scales) >= 1
    third = [entry for entry in model.certificate.measurements if entry.order == 3]
    assert {entry.stage for entry in third} == {3}
    assert sum(entry.tables for entry in third) == len(triples.scales)
    assert third[0].what == "three-way tables over coarse levels"
    scores = model.measured.scores
    assert scores is not None
    spend = sum((tables.plan.spend for tables in model.measured.stages), triples.spend + scores.spend)
    stages = plan_release(SCHEMA.cells, BUDGET, Method(), n_rows=ROWS)
    assert BUDGET.spent(spend) <= BUDGET.spent(stages.spend) <= BUDGET.epsilon
    assert any("stage 3" in line and "three-way tables" in line for line in model.summary())


def test_scores_of_all_three_way_tables_come_first_and_are_certified(released: tuple[Model, Path]) -> None:
    model, _ = released
    scores = model.measured.scores
    assert scores is not None
    assert scores.scores.shape == (SCHEMA.cells.n_trios,)
    planned = plan_scores(SCHEMA.cells, ROWS, plan_release(SCHEMA.cells, BUDGET, Method(), n_rows=ROWS))
    assert planned is not None
    assert scores.scale == planned[0]
    (entry,) = [entry for entry in model.certificate.measurements if entry.order == SCORES]
    assert (entry.stage, entry.tables, entry.scale) == (3, 4, scores.scale)
    # One number: it moves as far in L1 as in L2.
    assert entry.sensitivity_l1 == entry.sensitivity_l2 == pytest.approx(np.sqrt(2))
    assert entry.what == "scores of three-way tables"
    line = f"  stage 3: 4 scores of three-way tables, noise of scale {scores.scale:.4g} a score"
    assert line in model.summary()


def test_scores_find_what_no_pair_shows() -> None:
    """The sum of two even columns, modulo 3: all pairs are independent, and no fit of them disagrees about anything."""
    generator = np.random.default_rng(5)
    codes = generator.integers(0, 3, (4, ROWS)).astype(np.int32)
    codes[2] = (codes[0] + codes[1]) % 3
    attributes = tuple(Attribute(name=name, kind="integer", edges=(0, 1, 2, 3)) for name in "abcd")
    schema = Schema(name="audit", attributes=attributes)
    model = sklar.fit(frame_of(schema, codes), schema, BUDGET)
    scores, triples = model.measured.scores, model.measured.triples
    assert scores is not None
    # The one that is not zero is 1,000 rows from independence, 40 sds of its noise.
    assert scores.rows[0] > 10 * scores.sd
    assert triples is not None
    assert [0, 1, 2] in triples.triples.attributes.tolist()
    found = model.copula.components()
    assert found is not None
    table = np.einsum("ci,cj,ck->ijk", *(found[:, 3 * at : 3 * at + 3].astype(np.float64) for at in range(3)))
    real = np.zeros((3, 3, 3))
    np.add.at(real, tuple(codes[:3]), 1 / ROWS)
    # Independence is off by two thirds.
    assert np.abs(table / len(found) - real).sum() / 2 < 0.2


def test_without_anything_to_find_scores_are_paid_and_pairs_get_the_rest() -> None:
    codes = np.random.default_rng(6).integers(0, 3, (3, ROWS)).astype(np.int32)
    attributes = tuple(Attribute(name=name, kind="integer", edges=(0, 1, 2, 3)) for name in "abc")
    schema = Schema(name="audit", attributes=attributes)
    measured = sklar.measure(frame_of(schema, codes), schema, BUDGET)
    scores = measured.scores
    assert scores is not None
    stages = plan_release(schema.cells, BUDGET, Method(), n_rows=ROWS)
    third = scores.spend if measured.triples is None else scores.spend + measured.triples.spend
    spend = sum((tables.plan.spend for tables in measured.stages), third)
    assert 0.999 * BUDGET.spent(stages.spend) < BUDGET.spent(spend) <= BUDGET.spent(stages.spend) <= BUDGET.epsilon


def test_a_file_without_scores_loads_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As earlier releases wrote them: by what fits disagree about alone."""
    with monkeypatch.context() as patched:
        patched.setattr(release, "plan_scores", lambda *_facts: None)
        model = sklar.fit(frame_of(SCHEMA, rows()), SCHEMA, BUDGET)
        model.save(tmp_path / "m.sklar")
    assert model.measured.triples is not None
    assert model.measured.scores is None
    document, arrays = opened(tmp_path / "m.sklar")
    assert "scores" not in document
    assert "scores" not in arrays
    found = verify(tmp_path / "m.sklar", refit=True)
    assert found.passed, found.lines()


def test_the_noise_is_that_of_the_certificate(released: tuple[Model, Path]) -> None:
    from sklar.kernel.count import count_triples_plainly

    triples = released[0].measured.triples
    assert triples is not None
    noise = triples.counts - count_triples_plainly(rows(), triples.triples)
    z = noise / np.repeat(triples.scales, triples.triples.sizes)
    # Over at least 60 cells the mean square is known to 18%: six of them fail once in 10^8.
    assert z.size >= 60
    assert 0.2 < np.mean(z**2) < 2.5


def test_the_choice_follows_from_the_first_stage_alone(released: tuple[Model, Path]) -> None:
    model, _ = released
    triples = model.measured.triples
    assert triples is not None
    stages = plan_release(SCHEMA.cells, BUDGET, Method(), n_rows=ROWS)
    scores = model.measured.scores
    assert scores is not None
    found = look_for_triples(pool(model.measured.stages[:1]), SCHEMA, stages, lambda *_asked: scores)
    wanted = found.wanted
    assert wanted is not None
    assert (wanted.triples.attributes == triples.triples.attributes).all()
    assert (wanted.triples.coarse == triples.triples.coarse).all()


def test_the_model_knows_what_pairs_do_not(released: tuple[Model, Path]) -> None:
    model, _ = released
    codes = rows()
    errors = []
    for fitted in (model, fit_tables(replace(model.measured, triples=None))):
        found = fitted.copula.components()
        assert found is not None
        worst = 0.0
        offsets = SCHEMA.offsets
        for a, b, c in ((0, 1, 2), (0, 1, 3)):
            parts = [found[:, offsets[i] : offsets[i + 1]].astype(np.float64) for i in (a, b, c)]
            table = np.einsum("ci,cj,ck->ijk", *parts) / len(found)
            real = np.zeros_like(table)
            np.add.at(real, tuple(codes[[a, b, c]]), 1 / ROWS)
            worst = max(worst, float(np.abs(table - real).sum()) / 2)
        errors.append(worst)
    # Far apart: the factor is two to ten in draw after draw.
    assert errors[0] < 0.8 * errors[1]


def test_a_model_file_keeps_them(released: tuple[Model, Path]) -> None:
    model, path = released
    again = load(path)
    triples, kept = model.measured.triples, again.measured.triples
    assert triples is not None
    assert kept is not None
    assert (kept.counts == triples.counts).all()
    assert (kept.scales == triples.scales).all()
    assert (kept.triples.attributes == triples.triples.attributes).all()
    assert (kept.triples.coarse == triples.triples.coarse).all()
    assert again.certificate.measurements == model.certificate.measurements
    scores, own = model.measured.scores, again.measured.scores
    assert scores is not None
    assert own is not None
    assert (own.scores == scores.scores).all()
    assert own.scale == scores.scale


def test_verify_passes_it_with_a_refit(released: tuple[Model, Path]) -> None:
    found = verify(released[1], refit=True)
    assert found.passed, found.lines()
    assert {"margins of three-way tables", "each three-way table's margins"} <= {test.name for test in found.noise}
    plan = next(check for check in found.checks if check.name == "plan")
    assert "100% are those that this machine would choose" in plan.detail


def _exact(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    from sklar.kernel.count import count_triples_plainly
    from sklar.kernel.triples import Triples

    from sklar.kernel.cells import Cells

    triples = Triples(
        cells=Cells(SCHEMA.sizes),
        attributes=arrays["triples_attributes"].reshape(-1, 3),
        coarse=arrays["triples_coarse"],
    )
    arrays["triples"] = count_triples_plainly(rows(), triples)


def _cheaper(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["triples_scales"] = arrays["triples_scales"] * 64
    for entry in document["certificate"]["measurements"]:
        entry["scale"] *= 64 if entry["order"] == 3 else 1


def _unstated(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    entries = document["certificate"]["measurements"]
    document["certificate"]["measurements"] = [entry for entry in entries if entry["order"] != 3]


def _costly(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["triples_scales"] = arrays["triples_scales"] / 4
    for entry in document["certificate"]["measurements"]:
        entry["scale"] /= 4 if entry["order"] == 3 else 1


def _unscored(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    del document["scores"], arrays["scores"]


def _free_scores(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["certificate"]["measurements"] = [
        entry for entry in document["certificate"]["measurements"] if entry["order"] != SCORES
    ]


def _rescored(factor: float) -> Any:
    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        document["scores"]["scale"] *= factor
        for entry in document["certificate"]["measurements"]:
            entry["scale"] *= factor if entry["order"] == SCORES else 1

    return change


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (_exact, "noise"),
        (_cheaper, "noise"),
        (_unstated, "measurements"),
        (_costly, "theorem"),
        (_unscored, "measurements"),
        (_free_scores, "measurements"),
        (lambda document, arrays: document["scores"].update(scale=2048.0), "measurements"),
        (_rescored(1 / 8), "theorem"),
    ],
)
def test_verify_finds_forged_triples(released: tuple[Model, Path], tmp_path: Path, change: Any, check: str) -> None:
    found = verify(forged(released[1], change, tmp_path / "forged.sklar"))
    assert check in {each.name for each in found.checks if not each.passed}


def test_a_refit_finds_scores_at_another_scale(released: tuple[Model, Path], tmp_path: Path) -> None:
    """Cheaper scores fit the budget, and no other table tells their noise: the plan does."""
    from sklar.trust.verify.refit import check_plan

    path = forged(released[1], _rescored(2.0), tmp_path / "forged.sklar")
    assert verify(path).passed
    found = check_plan(load(path))
    assert not found.passed
    assert found.detail.startswith("the scores of three-way tables do not have the scale that this Sklar plans")


def _recoarsened(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    # The same tables over other levels: which levels is then somebody's knowledge.
    coarse = arrays["triples_coarse"]
    coarse[-1], coarse[-2] = coarse[-2], coarse[-1]
    coarse[-3], coarse[-4] = coarse[-4], coarse[-3]
    coarse[-12:] = coarse[-12:][::-1].copy()


def test_a_refit_finds_other_levels(released: tuple[Model, Path], tmp_path: Path) -> None:
    from sklar.trust.verify.refit import check_plan

    model = load(forged(released[1], _recoarsened, tmp_path / "forged.sklar"))
    assert not check_plan(model).passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document, arrays: document["triples"].update(tables=0), "triples.tables must be a whole number"),
        (lambda document, arrays: arrays["triples_coarse"].__setitem__(0, 9), "coarse level from 0 to 7"),
        (lambda document, arrays: arrays["triples_attributes"].__setitem__(0, 3), "three attributes of the schema"),
        (lambda document, arrays: arrays["triples"].__setitem__(0, 2**60), r"at most 2\*\*53 in size"),
        (lambda document, arrays: arrays["triples_scales"].__setitem__(0, 0.0), "can be drawn exactly"),
        (lambda document, arrays: document.pop("triples"), "which no model does"),
        (lambda document, arrays: document.pop("scores"), "'scores.npy', which no model does"),
        (lambda document, arrays: document["scores"].update(tables=3), "scores must be those of all tables of three"),
        (lambda document, arrays: document["scores"].update(scale=2.0**21), "scores.scale must be a number"),
        (lambda document, arrays: arrays["scores"].__setitem__(0, 2**60), r"scores must be at most 2\*\*53 in size"),
    ],
)
def test_a_damaged_file_is_refused(released: tuple[Model, Path], tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(forged(released[1], change, tmp_path / "damaged.sklar"))


def test_answers_over_three_attributes_have_error_bars_where_they_were_measured(released: tuple[Model, Path]) -> None:
    model, _ = released
    triples = model.measured.triples
    assert triples is not None
    codes = rows()
    assert [0, 1, 2] in triples.triples.attributes.tolist()
    found = answer(model, "a0 = 1 and a1 = 2 and a2 = 0")
    table = triples.triples.attributes.tolist().index([0, 1, 2])
    assert found.standard_error == pytest.approx(float(triples.scales[table]))
    assert found.estimate is not None
    real = np.count_nonzero((codes[0] == 1) & (codes[1] == 2) & (codes[2] == 0))
    assert abs(found.estimate - real) < 8 * float(triples.scales[table])
    assert found.measured_by == "1 noisy cell of the coarse table of 'a0', 'a1', 'a2'"
    # In any order of the question; and where most cells are asked for, by the rest only if all rows have a cell.
    assert answer(model, "a2 = 0 and a0 = 1 and a1 = 2").estimate == found.estimate
    most = answer(model, "not (a0 = 1 and a1 = 2 and a2 = 0)", complete=True)
    assert most.estimate == pytest.approx(ROWS - found.estimate)
    assert most.measured_by.startswith("n less 1 noisy cell")


def test_answers_that_coarse_levels_cannot_give_are_the_models(released: tuple[Model, Path]) -> None:
    model, _ = released
    triples = model.measured.triples
    assert triples is not None
    listed = triples.triples.attributes.tolist()
    wide = next(each for each in listed if 3 in each)
    names = [SCHEMA.names[i] for i in wide]
    coarse = triples.triples.coarse[SCHEMA.cells.levels(3)]
    twin = int(np.flatnonzero(np.bincount(coarse)[coarse] > 1)[0])
    text = " and ".join(f"{name} = {twin if name == 'a3' else 0}" for name in names)
    found = answer(model, text)
    assert found.estimate is None
    assert "was measured over coarser levels than this predicate tells apart" in found.measured_by
    without = replace(model, measured=replace(model.measured, triples=replace_first(triples)))
    assert "only pairs and" in answer(without, "a0 = 1 and a1 = 2 and a2 = 0").measured_by


def replace_first(triples: Any) -> Any:
    """The same tables without that of the first three attributes."""
    from sklar.kernel.triples import NoisyTriples, Triples

    own = triples.triples
    kept = ~(own.attributes == [0, 1, 2]).all(axis=1)
    cells = np.repeat(kept, own.sizes)
    some = Triples(cells=own.cells, attributes=own.attributes[kept].copy(), coarse=own.coarse)
    return NoisyTriples(triples=some, counts=triples.counts[cells].copy(), scales=triples.scales[kept].copy())


def test_what_can_be_read_once_only_has_no_third_stage() -> None:
    table = frame_of(SCHEMA, rows()).to_arrow()
    once = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert sklar.measure(once, SCHEMA, BUDGET).triples is None
    assert sklar.measure(table, SCHEMA, BUDGET, method="binary").triples is None


def test_a_file_that_changes_between_the_passes_is_told_to_have_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklar.rows import engines

    frame = frame_of(SCHEMA, rows())
    frame.write_parquet(tmp_path / "t.parquet")
    measured = engines.LocalTable.count_triples

    def changed(self: Any, *given: Any, **named: Any) -> Any:
        frame[1:].write_parquet(tmp_path / "t.parquet")
        return measured(self, *given, **named)

    monkeypatch.setattr(engines.LocalTable, "count_triples", changed)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("audit", epsilon=4.0, delta=BUDGET.delta)
    with pytest.raises(DataError, match="the table changed while it was read"):
        sklar.measure(tmp_path / "t.parquet", SCHEMA, BUDGET, ledger=ledger)
    assert ledger.history()[-1].kind == "charge"


def test_people_and_add_remove_have_a_third_stage_too() -> None:
    people = Schema.from_dict(
        {
            "table": {"name": "audit", "person": "id", "count": "rows", "rows_per_person": 2},
            "attributes": {
                f"a{i}": {"type": "integer", "edges": list(range(size + 1))} for i, size in enumerate(SIZES)
            },
        }
    )
    many = 30_000
    frame = frame_of(SCHEMA, rows(many)).with_columns(id=pl.int_range(many) // 3)
    measured = sklar.measure(frame, people, replace(BUDGET, neighbors="add-remove"))
    assert measured.triples is not None
    # Two of every three rows count, in each pass.
    sizes = measured.triples.triples.sizes
    totals = np.add.reduceat(measured.triples.counts, np.cumsum(sizes) - sizes)
    assert (np.abs(totals - 2 * many / 3) < 7 * measured.triples.scales * sizes**0.5).all()
    assert measured.scores is not None
    moved = [entry.sensitivity_l2 for entry in measured.certificate.measurements if entry.order >= 3]
    assert moved == [2.0] * len(moved)


def test_spend_of_triples_is_that_of_their_tables(released: tuple[Model, Path]) -> None:
    triples = released[0].measured.triples
    assert triples is not None
    assert triples.spend.tables.sum() == len(triples.scales)
    assert BUDGET.spent(triples.spend) == BUDGET.spent(Spend.of(triples.scales))


def test_the_report_says_where_the_cost_went(released: tuple[Model, Path]) -> None:
    from sklar.answer.report import publishable
    from sklar.answer.report.publish import together

    page = publishable(released[0])
    assert "Part of that cost went to tables of three attributes, over coarser levels" in page
    assert "or that the scores showed them to miss." in page
    assert "Part of that cost went to <em>noisy</em> scores" in page
    assert together(released[0].certificate) == "three"
    assert "three-way tables over coarse levels" in page


def test_the_audit_finds_nothing_here(tmp_path: Path) -> None:
    """Genuine noise fails less than once in 10^8; `tests/flaws` has what it must find."""
    from sklar.trust.audit.comparison import QUICK
    from sklar.trust.audit.leaks import check_third

    (found,) = check_third(tmp_path, QUICK)
    assert found.passed, found
    assert found.found == "All of it follows."
