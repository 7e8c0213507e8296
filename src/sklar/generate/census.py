"""A census-like table of invented people of 15 and older: mixed types, nulls, and values outside the schema.

Each column is drawn given earlier ones, in the order of a life: age leads to marriage and children, age to education,
education to occupation, and all of those to hours and income. The column `person_id` is there and is not in the schema.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import TYPES, Blueprint, choose
from sklar.machine.wording import stated

BLOCK_ROWS = 8_192

_STATED = stated("sklar.generate", "census.toml")
ATTRIBUTES: dict[str, dict[str, Any]] = _STATED["attributes"]
_WEIGHTS, _FIGURES = _STATED["weights"], {name: np.array(each) for name, each in _STATED["figures"].items()}
_STAGE_STARTS = (25, 35, 50, 65, 80)
_UNLISTED = ("Bhutan", "Fiji", "Iceland", "Malta", "Samoa")
_TODAY, _YEAR = np.datetime64("2025-01-01", "D"), 365.25
Integers = npt.NDArray[np.intp]


def _draw(kinds: pl.Schema, rng: np.random.Generator, first: int) -> pl.DataFrame:
    rows = BLOCK_ROWS
    region = choose(rng, _WEIGHTS["region"], rows=rows)
    age = 15 + 5 * choose(rng, _WEIGHTS["age"], rows=rows) + rng.integers(0, 5, rows)
    stage = np.searchsorted(_STAGE_STARTS, age, side="right")
    female = rng.random(rows) < 0.49 + 0.005 * np.maximum(age - 60, 0)
    sex = np.where(female, 0, 1)

    men = np.array(_WEIGHTS["marital_by_stage"])
    women = men * [1, 1, 1, 1, 1.1, 2.2]  # they outlive their husbands
    marital = choose(rng, [*women, *men], sex * len(women) + stage)
    couple = (marital == 1) | (marital == 2)
    children = np.minimum(rng.poisson(_FIGURES["children"][stage] * np.where(marital == 0, 1 / 3, 1.0)), 8)
    at_home = rng.binomial(children, np.array([0.9, 0.97, 0.85, 0.25, 0.05, 0.05])[stage])
    lodgers = rng.poisson(np.array([1.6, 0.4, 0.1, 0.1, 0.1, 0.2])[stage])
    household = np.minimum(1 + couple + at_home + lodgers, 12)

    education = choose(rng, _WEIGHTS["education_by_stage"], stage)
    employed = rng.random(rows) < np.clip(_FIGURES["employed"][stage] * (0.82 + 0.09 * education), 0, 0.97)
    tilted = np.array(_WEIGHTS["occupation_by_sex"])[:, None] * _WEIGHTS["occupation_by_education"]
    occupation = choose(rng, tilted.reshape(-1, tilted.shape[2]), sex * 7 + education)
    # Those out of work often name the last occupation they had.
    never = ~employed & (rng.random(rows) < np.array([0.95, 0.5, 0.4, 0.5, 0.85, 0.97])[stage])
    hours = _hours(rng, employed, sex, occupation)
    income = _income(rng, age, sex, education, occupation, hours)
    secret = rng.random(rows) < np.where(employed, 0.04, 0.09)

    abroad = rng.random(rows) < _FIGURES["foreign"][region]
    home = ATTRIBUTES["birth_country"]["values"].index("Home")
    country = np.where(abroad, choose(rng, _WEIGHTS["abroad"], rows=rows), home)
    # Registered at 16, and newcomers on arrival.
    years = np.maximum(age - 16, 0) * np.where(abroad, rng.beta(1.2, 1.6, rows), 1.0)
    registered = _TODAY - 1 - (years * _YEAR + rng.exponential(90, rows)).astype("timedelta64[D]")

    person = [np.arange(first + 1, first + 1 + rows), _texts("region", region), age, _texts("sex", sex)]
    family = [_texts("marital_status", marital), children, household, _texts("education", education)]
    work = [employed, _texts("occupation", occupation).set(pl.Series(never), None), hours]
    rest = [pl.Series(income).set(pl.Series(secret), None), _texts("birth_country", country), registered]
    columns = [*person, *family, *work, *rest, _last_contact(rng, employed)]
    return pl.DataFrame(
        [pl.Series(column).cast(kind).alias(name) for (name, kind), column in zip(kinds.items(), columns, strict=True)]
    )


def _hours(rng: np.random.Generator, employed: npt.NDArray[np.bool_], sex: Integers, occupation: Integers) -> Integers:
    full = rng.normal(np.array([45, 40, 39, 38, 38, 49, 40, 42, 37])[occupation], 5)
    part = rng.normal(20, 6, len(sex))
    short = rng.random(len(sex)) < np.where(sex == 0, 0.38, 0.12) * np.where(occupation == 4, 1.5, 1.0)
    # A few people report impossible weeks, past the schema's top edge.
    long = rng.random(len(sex)) < 0.002
    hours = np.where(long, 84, np.clip(np.where(short, part, full), 1, 79)).round()
    return np.where(employed, hours, 0).astype(np.intp)


def _income(
    rng: np.random.Generator, age: Integers, sex: Integers, education: Integers, occupation: Integers, hours: Integers
) -> npt.NDArray[np.float64]:
    experience = np.clip(age - 20, 0, 35) / 35
    wage = 9.75 + 0.13 * education + 0.55 * experience + 0.12 * sex + _FIGURES["pay"][occupation]
    working = wage + np.log(np.maximum(hours, 5) / 40)
    idle = 9.0 + 0.07 * education + 0.5 * (age >= 65)
    log_income = np.where(hours > 0, working, idle) + rng.normal(0, 0.35, len(age))
    return np.exp(log_income).round(2)


def _last_contact(rng: np.random.Generator, employed: npt.NDArray[np.bool_]) -> pl.Series:
    """A time in 2024: campaigns in spring and autumn, and evenings for those who work."""
    rows = len(employed)
    day = rng.triangular(0, 100, 183, rows) + np.where(rng.random(rows) < 0.4, 182, 0)
    hour = np.clip(rng.normal(np.where(employed, 18.5, 11.5), 1.8), 8, 20.99)
    seconds = day.astype(np.int64) * 86_400 + (hour * 3_600).astype(np.int64)
    when = np.datetime64("2024-01-01T00:00:00", "ms") + seconds.astype("timedelta64[s]")
    return pl.Series(when).set(pl.Series(rng.random(rows) < 0.12), None)


def _texts(name: str, codes: Integers) -> pl.Series:
    return pl.Series([*ATTRIBUTES[name]["values"], *_UNLISTED]).gather(codes)


@cache
def table() -> Blueprint:
    """Census and its public schema."""
    kinds = pl.Schema({"person_id": pl.Int64(), **{name: TYPES[entry["type"]] for name, entry in ATTRIBUTES.items()}})
    return Blueprint(stream=1, block_rows=BLOCK_ROWS, attributes=ATTRIBUTES, columns=kinds, draw=partial(_draw, kinds))
