"""The person of a schema: the keys of [table], what is refused, and the budget that it makes."""

from __future__ import annotations

import pytest

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import Budget
from sklar.public.person import Person, budget_for
from sklar.public.schema import Schema

ATTRIBUTE = '[attributes.ward]\ntype = "categorical"\nvalues = ["A", "B"]\n'


def schema(keys: str) -> Schema:
    return Schema.from_toml(f'[table]\nname = "visits"\n{keys}\n{ATTRIBUTE}')


@pytest.mark.parametrize(
    ("keys", "person"),
    [
        ('person = "id"\ncount = "people"', Person(column="id", count="people")),
        (
            'person = "id"\ncount = "rows"\nrows_per_person = 8\nnull_ids = "drop"',
            Person(column="id", count="rows", rows_per_person=8, null_ids="drop"),
        ),
        ("", None),
    ],
)
def test_a_person_is_read_and_written_back(keys: str, person: Person | None) -> None:
    found = schema(keys)
    assert found.person == person
    assert Schema.from_toml(found.to_toml()) == found
    assert Schema.from_dict(found.to_dict()) == found
    assert found.measured.person == person


def test_the_unit_is_part_of_the_digest() -> None:
    assert len({schema(keys).digest for keys in ("", 'person = "id"\ncount = "people"')}) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("rows_per_person = 8", "rows_per_person goes with person. Add person = 'COLUMN'"),
        ('count = "people"', "count goes with person"),
        ('null_ids = "drop"', "null_ids goes with person"),
        ('person = ""\ncount = "people"', "person must be the name of the column of ids, got ''"),
        ('person = 3\ncount = "people"', "person must be the name of the column of ids, got 3"),
        ('person = "id"', "count must be 'people' .* or 'rows' .*, got None"),
        ('person = "id"\ncount = "visits"', "count must be 'people' .* or 'rows' .*, got 'visits'"),
        ('person = "id"\ncount = "rows"', "rows_per_person must be a whole number from 1 to 1,000, got None"),
        ('person = "id"\ncount = "rows"\nrows_per_person = 0', "from 1 to 1,000, got 0. Noise grows with it"),
        ('person = "id"\ncount = "rows"\nrows_per_person = 1001', "from 1 to 1,000, got 1001. Noise grows with it"),
        ('person = "id"\ncount = "rows"\nrows_per_person = true', "from 1 to 1,000, got True"),
        ('person = "id"\ncount = "people"\nrows_per_person = 8', "rows_per_person goes with count = 'rows'"),
        ('person = "id"\ncount = "people"\nnull_ids = "fail"', "null_ids must be 'person' .* or 'drop' .*, got 'fail'"),
        ('person = "ward"\ncount = "people"', "never released, and .attributes. lists it. Remove the attribute"),
    ],
)
def test_what_makes_no_unit_is_refused(keys: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema(keys)


def test_the_schema_decides_for_whom_a_budget_is() -> None:
    plain, eight = Budget(epsilon=1.0), Person(column="id", count="rows", rows_per_person=8)
    assert budget_for(None, plain) == plain
    assert budget_for(eight, plain).rows_per_person == 8
    assert budget_for(Person(column="id", count="people"), plain).rows_per_person == 1
    assert budget_for(eight, Budget(epsilon=1.0, rows_per_person=8)).rows_per_person == 8
    with pytest.raises(BudgetError, match="people with up to 4 rows, and the schema says rows_per_person = 8"):
        budget_for(eight, Budget(epsilon=1.0, rows_per_person=4))
    with pytest.raises(BudgetError, match="people with up to 4 rows, and the schema says that a row is a person"):
        budget_for(None, Budget(epsilon=1.0, rows_per_person=4))
