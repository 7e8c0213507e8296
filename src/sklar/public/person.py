"""Whom a release protects where a person may have many rows: the part of `[table]` that names the person.

The column of ids groups rows and does nothing else: it is no attribute, and no release holds a value of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sklar.errors import BudgetError
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, Budget
from sklar.public.attribute import refuse

Count = Literal["people", "rows"]
NullIds = Literal["person", "drop"]
PERSON_KEYS = ("person", "count", "rows_per_person", "null_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Rows with the same id in `column` are one person's, and a release protects all of them together.

    `count` says what a release counts: "people" takes one row of each person, chosen at random, so that shares are
    averaged over people; "rows" takes at most `rows_per_person` rows of each, chosen at random, and noise grows with
    that number. A row without an id is a person of its own, or left out where `null_ids` is "drop".
    """

    column: str
    count: Count
    rows_per_person: int = 1
    null_ids: NullIds = "person"

    @property
    def words(self) -> str:
        """What is counted, in words."""
        if self.count == "people":
            return "people: one row of each, chosen at random"
        return f"rows: at most {self.rows_per_person:,} of each person, chosen at random"


def parse_person(table: Mapping[str, Any], names: Container[str]) -> Person | None:
    """The person that `[table]` names; None where every row is a person. `names` are those of the attributes."""
    column, count, rows, null_ids = (table.get(key) for key in PERSON_KEYS)
    alone = next((key for key in PERSON_KEYS if key in table), None)
    if column is None:
        refuse("[table] ", (alone, f"{alone} goes with person. Add person = 'COLUMN', or remove {alone}."))
        return None
    counts = "'people' (one row of each person counts) or 'rows' (up to rows_per_person rows of each count)"
    nulls = "'person' (a row without an id is a person of its own) or 'drop' (it is left out)"
    whole = f"a whole number from 1 to {MAX_ROWS_PER_PERSON:,}"
    many = type(rows) is int and 1 <= rows <= MAX_ROWS_PER_PERSON
    refuse(
        "[table] ",
        (not isinstance(column, str) or not column, f"person must be the name of the column of ids, got {column!r}."),
        (count not in get_args(Count), f"count must be {counts}, got {count!r}. docs/people.md has examples."),
        (null_ids not in (None, *get_args(NullIds)), f"null_ids must be {nulls}, got {null_ids!r}."),
        (count == "people" and rows is not None, f"rows_per_person goes with count = 'rows', got {rows!r}. Remove it."),
        (count == "rows" and not many, f"rows_per_person must be {whole}, got {rows!r}. Noise grows with it."),
        (column in names, f"person = '{column}' is never released, and [attributes] lists it. Remove the attribute."),
    )
    return Person(column=column, count=table["count"], rows_per_person=rows or 1, null_ids=null_ids or "person")


def describe_person(person: Person | None) -> dict[str, Any]:
    """The keys that `parse_person` reads."""
    if person is None:
        return {}
    rows = {"rows_per_person": person.rows_per_person} if person.count == "rows" else {}
    nulls = {} if person.null_ids == "person" else {"null_ids": person.null_ids}
    return {"person": person.column, "count": person.count} | rows | nulls


def budget_for(person: Person | None, budget: Budget) -> Budget:
    """The budget for the unit that a schema names: what costs what depends on it."""
    rows = None if person is None else person.rows_per_person
    if budget.rows_per_person not in (None, rows):
        raise BudgetError(
            f"the budget is for people with up to {budget.rows_per_person} rows, and the schema says "
            f"{'that a row is a person' if person is None else f'rows_per_person = {rows}'}. Leave rows_per_person out "
            "of the budget: the schema decides."
        )
    return replace(budget, rows_per_person=rows)
