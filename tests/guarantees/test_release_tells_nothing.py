"""What is released beside noisy cells follows from public facts and noisy cells: plans, models, numbers of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.budget.ledger import Ledger
from sklar.budget.method import Method
from sklar.errors import BudgetError
from sklar.files.model import fit_tables
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.release import fit, measure
from sklar.trust.audit.by_kind import follows
from tests.guarantees.people import BASE, FLAG, walk

SCHEMA = Schema.from_toml(BASE + FLAG)
ADDED = Budget(epsilon=1.0, neighbors="add-remove")


def people(rows: int) -> pl.DataFrame:
    number = np.arange(rows)
    cities = np.array(["Bern", "Rome"])[(number % 3 == 0).astype(int)]
    return pl.DataFrame({"age": number % 90, "city": cities, "ok": number % 3 == 0})


def test_the_number_of_rows_stands_nowhere_under_add_remove() -> None:
    """17,389 rows: noise gives that number by chance in one of two releases in hundreds, in three of three never."""
    table, held = people(17_389), 0
    for _ in range(3):
        model = fit(table, SCHEMA, ADDED, method="binary")
        measured = model.measured
        assert measured.n_rows is None
        shown = walk([measured.certificate.to_dict(), dict(model.settings), measured.schema.to_dict()])
        held += any(type(value) is int and value == 17_389 for _, value in shown)
        held += model.n_rows == 17_389
    assert held < 3


def test_the_first_plan_is_the_same_for_any_number_of_rows_under_add_remove() -> None:
    releases = [measure(people(rows), SCHEMA, ADDED).blocks for rows in (3, 300, 100_000)]
    plans = [[block.scales.tolist() for block in blocks[:3]] for blocks in releases]
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.parametrize("rows", [50, 3_000, 20_000])
def test_later_stages_follow_from_the_first(rows: int) -> None:
    """Worked out again from what was released: equal to the last digit, whatever the exact counts are.

    Three-way tables are measured where rows are many: with those that depend on two others, always.
    """
    budget, method = Budget(epsilon=1.0), Method()
    table, schema = (people(rows), SCHEMA) if rows < 20_000 else _structured(rows)
    measured = measure(table, schema, budget, method=method)
    assert follows(measured, budget)
    kinds = {type(block.query).__name__ for block in measured.blocks}
    chosen = [block for block in measured.blocks if getattr(block.query, "sets", None) is not None]
    assert rows < 20_000 or ("Distances" in kinds and chosen)


def _structured(rows: int) -> tuple[pl.DataFrame, Schema]:
    """Two columns of which a third is the sum, modulo 3, and one with more levels than are measured."""
    generator = np.random.default_rng(rows)
    one, two, noise = (generator.integers(0, size, rows) for size in (4, 5, 3))
    columns = {"a": one, "b": two, "c": (one + two) % 3, "d": (one * 3 + two * 2 + noise) % 11}
    edges = (tuple(range(size + 1)) for size in (4, 5, 3, 11))
    own = (Attribute(name=name, kind="integer", edges=each) for name, each in zip(columns, edges, strict=True))
    return pl.DataFrame(columns), Schema(name="people", attributes=tuple(own))


def test_a_refusal_of_the_ledger_ends_the_release(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "l.db")
    book.open_account("people", epsilon=1.0, delta=2.0**-30)
    measure(people(50), SCHEMA, Budget(epsilon=0.9), ledger=book, dataset="people")
    with pytest.raises(BudgetError, match="would overspend it"):
        measure(people(50), SCHEMA, Budget(epsilon=0.9), ledger=book, dataset="people")
    assert len(book.account("people").charges) == 1


@pytest.mark.parametrize("method", ["binary", "mixture"])
def test_a_model_follows_from_its_noisy_tables(method: str) -> None:
    """Fitted again to what was released. At epsilon 0.1 noise is so large that exact counts would give another."""
    model = fit(people(500), SCHEMA, epsilon=0.1, method=method)
    again = fit_tables(model.measured, method=method)
    assert again.n_rows == model.n_rows
    for name, array in model.copula.arrays().items():
        np.testing.assert_allclose(again.copula.arrays()[name], array, rtol=1e-3, atol=1e-4)
