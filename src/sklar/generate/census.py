"""A census-like table of invented people of 15 and older: mixed types, nulls, and values outside the schema.

Each column is drawn given earlier ones, in the order of a life: age leads to marriage and children, age to education,
education to occupation, and all of those to hours and income. The column `person_id` is there and is not in the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import TYPES, Blueprint, choose

BLOCK_ROWS = 8_192

_REGIONS = (
    *("Capital", "East Coast", "Highlands", "Lakes", "North, Inner", "North, Outer", "South Coast", "Western Isles"),
)
_REGION_SHARES = (26, 14, 6, 9, 16, 8, 18, 3)
_FOREIGN = np.array([0.38, 0.16, 0.05, 0.08, 0.22, 0.07, 0.14, 0.03])  # share born abroad, by region

_SEXES = ("Female", "Male")
_AGE_EDGES = tuple(range(15, 101, 5))
# By five years from 15; the last group, past 100, is above the schema's top edge.
_AGE_SHARES = (70, 74, 80, 84, 82, 80, 78, 78, 76, 70, 64, 56, 46, 34, 20, 9, 2.5, 0.8)
_STAGE_STARTS = (25, 35, 50, 65, 80)  # stages of life: 15 to 24, 25 to 34, and so on; 80 and over

_MARITAL = ("Never married", "Married", "Civil partnership", "Separated", "Divorced", "Widowed")
_MARRIED = ((96, 3, 0.5, 0.3, 0.2, 0), (55, 36, 4, 2, 3, 0), (22, 60, 3, 4, 10, 1),
            (10, 64, 2, 3, 17, 4), (6, 62, 1, 1, 12, 18), (5, 36, 0.5, 0.5, 6, 52))  # fmt: skip
_CHILDREN = np.array([0.04, 0.8, 1.9, 2.0, 2.2, 2.5])  # mean ever born, by stage; a third of it for the never married

_EDUCATION = (
    *("No qualification", "Lower secondary", "Upper secondary", "Vocational", "Bachelor's", "Master's", "Doctorate"),
)
_EDUCATED = ((8, 38, 38, 8, 8, 0, 0), (2, 8, 22, 22, 29, 15, 2), (3, 10, 23, 25, 23, 13, 3),
             (6, 16, 26, 27, 15, 8, 2), (14, 28, 26, 20, 8, 3, 1), (28, 36, 20, 11, 4, 1, 0))  # fmt: skip
_EMPLOYED = np.array([0.42, 0.76, 0.80, 0.68, 0.10, 0.01])  # by stage, for upper secondary

_OCCUPATIONS = (
    *("Managers", "Professionals", "Technicians", "Clerks", "Service, sales", "Farming, forestry, fishing"),
    *("Craft and trades", "Drivers, machine operators", "Elementary"),
)
_WORKED = ((1, 0, 1, 3, 18, 9, 16, 18, 34), (2, 0.5, 3, 7, 27, 6, 18, 16, 20), (6, 3, 11, 20, 27, 3, 13, 9, 8),
           (7, 6, 22, 10, 14, 4, 27, 8, 2), (17, 46, 17, 10, 7, 1, 1, 0.5, 0.5), (24, 62, 8, 3, 2, 0.5, 0.3, 0.1, 0.1),
           (14, 83, 2, 0.5, 0.3, 0.1, 0.1, 0, 0))  # by education  # fmt: skip
_SEX_TILT = ((0.7, 1.2, 0.9, 1.7, 1.6, 0.6, 0.15, 0.25, 1.1), (1.3, 0.8, 1.1, 0.4, 0.6, 1.4, 1.9, 1.8, 0.9))
_PAY = np.array([0.45, 0.30, 0.12, -0.05, -0.25, -0.30, 0.0, -0.02, -0.35])  # added to log income, by occupation

_COUNTRIES = ("Brazil", "China", "France", "Germany", "Ghana", "Home", "India", "Poland", "Portugal", "Viet Nam")
_UNLISTED = ("Bhutan", "Fiji", "Iceland", "Malta", "Samoa")
_ABROAD = (9, 14, 8, 7, 6, 0, 22, 17, 8, 7, 0.4, 0.4, 0.5, 0.5, 0.2)

_TODAY = np.datetime64("2025-01-01", "D")
_YEAR = 365.25


def _nominal(title: str, values: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"type": "categorical", "values": list(values), "title": title, **more}


def _binned(title: str, kind: str, edges: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "edges": list(edges), "title": title, **more}


_WORK_EDGES = (0, 1, 10, 20, 30, 35, 40, 45, 50, 60, 80)
_INCOME_EDGES = (0, 5e3, 1e4, 1.5e4, 2e4, 3e4, 4e4, 5e4, 7.5e4, 1e5, 1.5e5, 2.5e5)
_REGISTERED_EDGES = [f"{year}-01-01" for year in (*range(1940, 2021, 10), 2025)]
_CONTACTS = {"low": "2024-01-01T00:00:00", "high": "2025-01-01T00:00:00", "bins": 12, "missing": ""}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "region": _nominal("Region", _REGIONS, description="Where the person lives."),
    "age": _binned("Age", "integer", _AGE_EDGES, unit="years"),
    "sex": _nominal("Sex", _SEXES),
    "marital_status": _nominal("Marital status", _MARITAL),
    "children": _binned("Children ever born", "integer", [0, 1, 2, 3, 4, 6, 9]),
    "household_size": _binned("People in the household", "integer", [1, 2, 3, 4, 5, 7, 10]),
    "education": _nominal("Highest education", _EDUCATION),
    "employed": {"type": "boolean", "title": "In paid work", "description": "Worked for pay in the last week."},
    "occupation": _nominal("Occupation", _OCCUPATIONS, missing="", labels={"": "no occupation"}),
    "hours_per_week": _binned("Usual working time", "integer", _WORK_EDGES, unit="hours a week"),
    "income": _binned("Income", "real", _INCOME_EDGES, missing="", unit="crowns a year"),
    "birth_country": _nominal("Country of birth", _COUNTRIES, other=True, labels={"other": "another country"}),
    "registered": _binned("First registered", "date", _REGISTERED_EDGES),
    "last_contact": {"type": "datetime", "title": "Last contact", "labels": {"": "never"}, **_CONTACTS},
}
Integers = npt.NDArray[np.intp]


def _draw(kinds: pl.Schema, rng: np.random.Generator, first: int) -> pl.DataFrame:
    rows = BLOCK_ROWS
    region = choose(rng, _REGION_SHARES, rows=rows)
    age = 15 + 5 * choose(rng, _AGE_SHARES, rows=rows) + rng.integers(0, 5, rows)
    stage = np.searchsorted(_STAGE_STARTS, age, side="right")
    female = rng.random(rows) < 0.49 + 0.005 * np.maximum(age - 60, 0)
    sex = np.where(female, 0, 1)

    women = np.array(_MARRIED) * [1, 1, 1, 1, 1.1, 2.2]  # they outlive their husbands
    marital = choose(rng, [*women, *_MARRIED], sex * len(women) + stage)
    couple = (marital == 1) | (marital == 2)
    children = np.minimum(rng.poisson(_CHILDREN[stage] * np.where(marital == 0, 1 / 3, 1.0)), 8)
    at_home = rng.binomial(children, np.array([0.9, 0.97, 0.85, 0.25, 0.05, 0.05])[stage])
    lodgers = rng.poisson(np.array([1.6, 0.4, 0.1, 0.1, 0.1, 0.2])[stage])
    household = np.minimum(1 + couple + at_home + lodgers, 12)

    education = choose(rng, _EDUCATED, stage)
    employed = rng.random(rows) < np.clip(_EMPLOYED[stage] * (0.82 + 0.09 * education), 0, 0.97)
    tilted = (np.array(_SEX_TILT)[:, None] * _WORKED).reshape(-1, len(_OCCUPATIONS))
    occupation = choose(rng, tilted, sex * 7 + education)
    # Those out of work often name the last occupation they had.
    never = ~employed & (rng.random(rows) < np.array([0.95, 0.5, 0.4, 0.5, 0.85, 0.97])[stage])
    hours = _hours(rng, employed, sex, occupation)
    income = _income(rng, age, sex, education, occupation, hours)
    secret = rng.random(rows) < np.where(employed, 0.04, 0.09)

    abroad = rng.random(rows) < _FOREIGN[region]
    country = np.where(abroad, choose(rng, _ABROAD, rows=rows), _COUNTRIES.index("Home"))
    # Registered at 16, and newcomers on arrival.
    years = np.maximum(age - 16, 0) * np.where(abroad, rng.beta(1.2, 1.6, rows), 1.0)
    registered = _TODAY - 1 - (years * _YEAR + rng.exponential(90, rows)).astype("timedelta64[D]")

    columns = [
        np.arange(first + 1, first + 1 + rows),
        _texts(_REGIONS, region),
        age,
        _texts(_SEXES, sex),
        _texts(_MARITAL, marital),
        children,
        household,
        _texts(_EDUCATION, education),
        employed,
        _texts(_OCCUPATIONS, occupation).set(pl.Series(never), None),
        hours,
        pl.Series(income).set(pl.Series(secret), None),
        _texts(_COUNTRIES + _UNLISTED, country),
        registered,
        _last_contact(rng, employed),
    ]
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
    wage = 9.75 + 0.13 * education + 0.55 * experience + 0.12 * sex + _PAY[occupation]
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


def _texts(levels: Sequence[str], codes: Integers) -> pl.Series:
    return pl.Series(levels).gather(codes)


@cache
def table() -> Blueprint:
    """Census and its public schema."""
    kinds = pl.Schema({"person_id": pl.Int64(), **{name: TYPES[entry["type"]] for name, entry in ATTRIBUTES.items()}})
    return Blueprint(stream=1, block_rows=BLOCK_ROWS, attributes=ATTRIBUTES, columns=kinds, draw=partial(_draw, kinds))
