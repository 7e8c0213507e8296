"""Whom a release protects where a person may have many rows: the part of `[table]` that names the person.

The column of ids groups rows and does nothing else: it is no attribute, and no release holds a value of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, Budget

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
    column, count, null_ids = table.get("person"), table.get("count"), table.get("null_ids", "person")
    if column is None:
        alone = [key for key in PERSON_KEYS if key in table]
        if alone:
            raise SchemaError(f"[table] {alone[0]} goes with person. Add person = 'COLUMN', or remove {alone[0]}.")
        return None
    if not isinstance(column, str) or not column:
        raise SchemaError(f"[table] person must be the name of the column of ids, got {column!r}.")
    if count not in get_args(Count):
        raise SchemaError(
            f"[table] count must be 'people' (one row of each person counts) or 'rows' (up to rows_per_person rows of "
            f"each count), got {count!r}. docs/people.md has an example of each."
        )
    if null_ids not in get_args(NullIds):
        raise SchemaError(
            f"[table] null_ids must be 'person' (a row without an id is a person of its own) or 'drop' (it is left "
            f"out), got {null_ids!r}."
        )
    rows = table.get("rows_per_person")
    if count == "people" and rows is not None:
        raise SchemaError(
            "[table] rows_per_person goes with count = 'rows': count = 'people' takes one row of each person. "
            "Remove one of them."
        )
    if count == "rows" and (type(rows) is not int or not 1 <= rows <= MAX_ROWS_PER_PERSON):
        raise SchemaError(
            f"[table] rows_per_person must be a whole number from 1 to {MAX_ROWS_PER_PERSON:,}, got {rows!r}. Noise "
            "grows with it: sklar forecast shows the error against it."
        )
    if column in names:
        raise SchemaError(
            f"[table] person = '{column}' is a column of ids, which groups rows and is never released, and "
            f"[attributes] lists it. Remove the attribute '{column}'."
        )
    return Person(column=column, count=cast(Count, count), rows_per_person=rows or 1, null_ids=null_ids)


def describe_person(person: Person | None) -> dict[str, Any]:
    """The keys that `parse_person` reads."""
    if person is None:
        return {}
    described: dict[str, Any] = {"person": person.column, "count": person.count}
    if person.count == "rows":
        described["rows_per_person"] = person.rows_per_person
    if person.null_ids != "person":
        described["null_ids"] = person.null_ids
    return described


def budget_for(person: Person | None, budget: Budget) -> Budget:
    """The budget for the unit that a schema names: what costs what depends on it.

    >>> visits = Person(column="patient", count="rows", rows_per_person=8)
    >>> budget_for(visits, Budget(epsilon=1.0)).rows_per_person
    8
    """
    rows = None if person is None else person.rows_per_person
    if budget.rows_per_person not in (None, rows):
        raise BudgetError(
            f"the budget is for people with up to {budget.rows_per_person} rows, and the schema says "
            f"{'that a row is a person' if person is None else f'rows_per_person = {rows}'}. Leave rows_per_person out "
            "of the budget: the schema decides."
        )
    return budget if budget.rows_per_person == rows else replace(budget, rows_per_person=rows)
