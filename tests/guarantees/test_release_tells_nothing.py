"""What is released beside noisy cells follows from public facts and noisy cells: first plans, numbers of rows.

That all plans and models do is tried on every kind of release in `tests/trust/test_audit.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sklar.budget.ledger import Ledger
from sklar.errors import BudgetError
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.release import fit, measure
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


def test_a_refusal_of_the_ledger_ends_the_release(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "l.db")
    book.open_account("people", epsilon=1.0, delta=2.0**-30)
    measure(people(50), SCHEMA, Budget(epsilon=0.9), ledger=book, dataset="people")
    with pytest.raises(BudgetError, match="would overspend it"):
        measure(people(50), SCHEMA, Budget(epsilon=0.9), ledger=book, dataset="people")
    assert len(book.account("people").charges) == 1
