"""Genuine releases of very different shapes: verify finds nothing wrong with any of them, plainly and after a refit.

A genuine release fails by chance less than once in a million.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sklar
from sklar.budget.method import PAPER, Method
from sklar.kernel.theorems import Budget
from sklar.public.schema import Attribute, Schema
from sklar.trust.verify import Verification, verify
from tests.linked import deep, deep_tables, small
from tests.linked import tables as linked_tables
from tests.trust import conftest as made
from tests.trust.conftest import SCHEMA, schema, table

Fit = Callable[[], Any]


def columns(number: int, levels: int, rows: int = 600) -> tuple[pl.DataFrame, Schema]:
    """So many columns of so many levels, which have something in common; every value has a level."""
    generator = np.random.default_rng(number)
    common, own = generator.integers(0, levels, rows), generator.integers(0, levels, (number, rows))
    drawn = np.where(generator.random((number, rows)) < 0.3, common, own)
    known = tuple(Attribute(name=f"c{i}", kind="integer", edges=tuple(range(levels + 1))) for i in range(number))
    return pl.DataFrame({f"c{i}": each for i, each in enumerate(drawn)}), Schema(name="c", attributes=known).checked()


def with_constant(rows: pl.DataFrame, known: Schema) -> tuple[pl.DataFrame, Schema]:
    constant = Attribute(name="z", kind="integer", edges=(0, 1))
    return rows.with_columns(z=pl.lit(0)), Schema(name="z", attributes=(*known.attributes, constant)).checked()


DATES = Schema.load(Path(__file__).with_name("dates.toml"))


def dates(rows: int = 800) -> pl.DataFrame:
    days = np.random.default_rng(4).integers(0, 20_000, rows)
    return pl.DataFrame(
        {
            "born": np.datetime64("1945-01-01") + days.astype("timedelta64[D]"),
            "seen": np.datetime64("2020-01-01T00:00:00.000") + 3_600_000 * (days % 8_700).astype("timedelta64[ms]"),
            "height": 1.4 + days % 60 / 100,
            "year": 1990 + days % 30,
        }
    )


def person(schema: Schema, **unit: Any) -> Schema:
    """The same of people, whose rows are told by a column `id`."""
    document = schema.to_dict()
    document["table"] = {**document.get("table", {}), "person": "id", **unit}
    return Schema.from_dict(document)


def with_people(rows: pl.DataFrame, each: int = 3) -> pl.DataFrame:
    return rows.with_columns(id=pl.Series(np.arange(rows.height) // each))


def weighted(**weights: float) -> Schema:
    document = SCHEMA.to_dict()
    for name, weight in weights.items():
        document["attributes"][name]["weight"] = weight
    return Schema.from_dict(document)


def fit(rows: pl.DataFrame, known: Schema, method: Any = "auto", **budget: Any) -> Fit:
    """A release with this budget, of epsilon 2 where that says nothing else."""
    return partial(sklar.fit, rows, known, Budget(**({"epsilon": 2.0} | budget)), method=method)


LAPLACE: dict[str, Any] = {"mechanism": "laplace"}
PRESENCE: dict[str, Any] = {"neighbors": "add-remove"}
SHAPES: dict[str, Fit] = {
    "six attributes": fit(table(), SCHEMA),
    "one column": fit(*columns(1, 5)),
    "one column of one level": fit(*columns(1, 1)),
    "one column, add-remove": fit(*columns(1, 5), **PRESENCE),
    "one column of 2,000 levels": fit(*columns(1, 2_000)),
    "two columns": fit(*columns(2, 3)),
    "300 columns": fit(*columns(300, 2, 200), epsilon=5.0),
    "300 columns of three levels": fit(*columns(300, 3, 100), epsilon=1.0),
    "levels by the hundred": fit(*columns(3, 300), epsilon=1.0),
    "an attribute of one level": fit(*with_constant(*columns(4, 3))),
    "one row": fit(table(1), SCHEMA),
    "no dependence": fit(*columns(5, 4, 50), epsilon=0.5),
    "bits": fit(made.bits(), made.BITS),
    "bits, a second look": fit(made.bits(), made.BITS, epsilon=8.0),
    "bits, add-remove": fit(made.bits(), made.BITS, **PRESENCE),
    "bits, Laplace": fit(made.bits(), made.BITS, **LAPLACE),
    "many bits": fit(*columns(40, 2), epsilon=3.0),
    "private domains": fit(made.towns(), made.PRIVATE, epsilon=4.0),
    "private domains, add-remove": fit(made.towns(), made.PRIVATE, epsilon=4.0, **PRESENCE),
    "people, rows": fit(made.visits(), made.VISITS),
    "people, people": fit(with_people(table()), person(SCHEMA, count="people")),
    "people, rows of six attributes": fit(with_people(table()), person(SCHEMA, count="rows", rows_per_person=3)),
    "people, Laplace": fit(with_people(table()), person(SCHEMA, count="rows", rows_per_person=2), **LAPLACE),
    "people, add-remove": fit(with_people(table()), person(SCHEMA, count="people"), **PRESENCE),
    "people, bits": fit(with_people(made.bits()), person(made.BITS, count="rows", rows_per_person=3)),
    "people, private domains": fit(with_people(made.towns()), person(made.PRIVATE, count="people"), epsilon=4.0),
    "rules": fit(made.ruled(), made.RULED),
    "rules, binary": fit(made.ruled(), made.RULED, "binary"),
    "Laplace": fit(table(), SCHEMA, **LAPLACE),
    "Laplace, add-remove": fit(table(), SCHEMA, **LAPLACE, **PRESENCE),
    "add-remove": fit(table(), SCHEMA, **PRESENCE),
    "epsilon .01": fit(table(), SCHEMA, epsilon=0.01),
    "epsilon 50": fit(table(), SCHEMA, epsilon=50.0),
    "epsilon 50, Laplace, add-remove": fit(table(), SCHEMA, epsilon=50.0, **LAPLACE, **PRESENCE),
    "epsilon 400": fit(table(), SCHEMA, epsilon=400.0),
    "linked": partial(sklar.fit, linked_tables(), small(), epsilon=3.0),
    "linked, one event": partial(sklar.fit, linked_tables(), small(1), epsilon=1.0),
    "linked, add-remove": partial(sklar.fit, linked_tables(900), small(), Budget(epsilon=2.0, **PRESENCE)),
    "linked, four tables": partial(sklar.fit, deep_tables(), deep(), epsilon=3.0),
    "dates and numbers": fit(dates(), DATES),
    "given weights": fit(table(), weighted(a0=4.0, a3=0.5)),
    "third stage": fit(made.threes(), schema((3,) * 6), epsilon=4.0),
    "third stage, add-remove": fit(made.threes(), schema((3,) * 6), epsilon=4.0, **PRESENCE),
    "binary": fit(table(), SCHEMA, "binary"),
    "paper": fit(table(), SCHEMA, PAPER),
    "dummies": fit(table(), SCHEMA, Method(name="binary", paper=True, dummies=True)),
    "values in no cell": fit(
        table().with_columns(a0=pl.lit("none of these")), schema((4, 5, 6, 7, 3, 9), complete=False)
    ),
}
# Those of the ordinary suite; the others are slow tests.
FEW = (
    "one column",
    "two columns",
    "bits",
    "people, rows",
    "epsilon 50, Laplace, add-remove",
    "linked",
    "rules, binary",
    "one row",
    "dates and numbers",
)


def both(make: Fit, folder: Path) -> tuple[Verification, Verification]:
    """What verify says of a release of this shape, plainly and after a refit."""
    make().save(path := folder / "m.sklar")
    return verify(path), verify(path, refit=True)
