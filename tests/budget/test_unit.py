"""Budgets by row and by person: the ledger, the forecast, and what a certificate says of the unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sklar.budget.account import own_cost
from sklar.budget.certificate import Certificate, certify
from sklar.budget.forecast import forecast, table_lines
from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.budget.plan import plan_release
from sklar.budget.search import plan_search
from sklar.errors import BudgetError
from sklar.kernel.queries import Block
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.public.settings import Person, budget_for

PLAIN = Schema.from_toml(
    '[table]\nname = "v"\n[attributes.a]\ntype = "boolean"\n[attributes.b]\ntype = "boolean"\n'
    '[attributes.c]\ntype = "categorical"\nvalues = ["x", "y", "z"]\n'
)
PEOPLE = replace(PLAIN, person=Person(column="id", count="people"))
EIGHT = replace(PLAIN, person=Person(column="id", count="rows", rows_per_person=8))


def budget_of(rows: int | None, epsilon: float = 1.0) -> Budget:
    return Budget(epsilon=epsilon, rows_per_person=rows)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.db")
    book.open_account("people", epsilon=10.0, delta=1e-6, unit="person")
    book.open_account("rows", epsilon=10.0, delta=1e-6)
    return book


def test_a_ledger_refuses_a_release_of_another_unit(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match=r"for any one row, got a release for any one person.*--unit person"):
        ledger.charge("rows", budget_of(8), budget_of(8).tables([200.0], [100]))
    with pytest.raises(BudgetError, match=r"for any one person, got a release for any one row.*Name the person"):
        ledger.charge("people", budget_of(None), budget_of(None).tables([200.0], [100]))
    with pytest.raises(BudgetError, match="unit must be 'row' or 'person', got 'visit'"):
        ledger.open_account("visits", epsilon=1.0, delta=1e-6, unit="visit")  # type: ignore[arg-type]


def test_releases_by_person_add_up_whatever_rows_each_counts(ledger: Ledger) -> None:
    for rows in (1, 8):
        ledger.charge("people", budget_of(rows), budget_of(rows).tables([200.0], [100]))
    account = ledger.account("people")
    assert (account.unit, ledger.account("rows").unit) == ("person", "row")
    costs = [charge.cost for charge in account.charges]
    assert costs[0].rho == pytest.approx(100 / 200**2)
    assert costs[1].rho == pytest.approx(64 * costs[0].rho)
    alone = Budget(epsilon=10.0, delta=1e-6, rows_per_person=1)
    # Together they cost what 65 times the tables of one row cost.
    assert account.spent == pytest.approx(alone.spent(alone.tables([200.0], [6_500])), rel=1e-3)
    assert account.to_dict()["unit"] == "person"
    assert "for any one person" in account.lines()[0]
    assert "for people with up to 8 rows" in account.charges[1].line()
    assert "for any one person" in next(entry.line() for entry in ledger.history() if entry.dataset == "people")


def test_pure_releases_cost_their_rows() -> None:
    budget = Budget(epsilon=1.0, mechanism="laplace", composition="basic", rows_per_person=8)
    epsilon, delta = own_cost(budget, budget.tables([100.0]))
    assert epsilon == pytest.approx(16 / 100)
    assert delta == 0


def test_a_plan_measures_the_number_of_rows_where_it_is_not_public() -> None:
    method, cells = Method(), PLAIN.cells
    people = plan_release(cells, budget_of(1), method, n_rows=1000)
    assert not people.first.scales(0).size
    alone = plan_release(cells, budget_of(None), method, n_rows=1000)
    assert all(np.array_equal(people.first.scales(order), alone.first.scales(order)) for order in (1, 2, 3))
    eight = plan_release(cells, budget_of(8), method, n_rows=None)
    assert eight.first.scales(0).size
    assert 0.999 < budget_of(8).spent(eight.spend) <= 1.0
    assert eight.spend.reach.tolist() == [8.0] * eight.spend.reach.size


def test_a_certificate_names_the_unit() -> None:
    def certificate(schema: Schema) -> Certificate:
        budget = budget_for(schema.person, Budget(epsilon=1.0))
        stages = plan_release(schema.cells, budget, Method(), n_rows=1000 if budget.rows_are_public else None)
        blocks = [Block(query=q, scales=s, values=np.zeros(q.n_cells, dtype=np.int64)) for q, s in stages.first.parts]
        return certify(schema, budget, blocks, None)

    plain, people, eight = (certificate(schema) for schema in (PLAIN, PEOPLE, EIGHT))
    assert [each.count for each in (plain, people, eight)] == [None, "people", "rows"]
    assert [each.rows_per_person for each in (plain, people, eight)] == [None, 1, 8]
    assert [each.unit for each in (plain, people)] == ["row", "person, with all their rows"]
    assert eight.counted == "rows, at most 8 of each person"
    assert {each.sensitivity_l1 for each in eight.measurements} == {16.0}
    assert {each.sensitivity_l2 for each in eight.measurements} == {8 * 2**0.5}
    assert Certificate.from_dict(eight.to_dict()) == eight
    # A file from before people has neither key.
    document = {key: value for key, value in plain.to_dict().items() if key not in ("count", "rows_per_person")}
    assert Certificate.from_dict(document) == plain


def test_thresholds_are_for_all_rows_of_a_person() -> None:
    private = '[attributes.c]\ntype = "categorical"\ndomain = "private"\nat_most = 5\n'
    schema = Schema.from_toml(private)
    one, eight = (plan_search(schema, budget_of(rows), n_rows=None).findings[0] for rows in (1, 8))
    assert eight.scale == pytest.approx(8 * one.scale, rel=0.01)
    assert eight.threshold is not None
    assert one.threshold is not None
    assert eight.threshold > 7 * one.threshold
    assert eight.lost_delta <= 0.1 * budget_of(8).delta


def test_a_forecast_shows_the_error_against_rows_per_person() -> None:
    found = forecast(EIGHT, rows=10_000, epsilon=1.0)
    errors = {each.budget.rows_per_person: each.one_way_error for each in found.against_rows()}
    assert list(errors) == [1, 2, 4, 8, 16, 32]
    assert errors[8] == found.one_way_error
    assert errors[16] == pytest.approx(2 * errors[8], rel=0.01)
    text = "\n".join(table_lines([found]))
    assert "Any one person, with all their rows, is protected. Counted are rows: at most 8 of each person" in text
    assert "against rows_per_person" in text
    assert "(the schema)" in text
    document = found.to_dict()
    assert (document["count"], document["rows_per_person"]) == ("rows", 8)
    assert len(document["against_rows_per_person"]) == 6
    # One row of each person costs what one row costs.
    people = forecast(PEOPLE, rows=10_000, epsilon=1.0)
    assert people.one_way_error == forecast(PLAIN, rows=10_000, epsilon=1.0).one_way_error
    assert people.against_rows() == ()
    assert forecast(PLAIN, rows=10_000, epsilon=1.0).to_dict()["count"] is None
