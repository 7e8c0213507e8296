"""A hospital: patients, their visits and prescriptions, and what was done at visits. It is about nobody. More:
docs/derivations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sklar.generate.blueprint import blocks, choose
from sklar.machine.wording import stated
from sklar.public.tree import Tree

KEY, VISIT = "patient_id", "visit_id"
PATIENTS = 20_000
TABLES = ("patients", "visits", "procedures", "prescriptions")
_STREAM = 6
_BLOCK = 8_192

_STATED = stated("sklar.generate", "visits.toml")
_WEIGHTS, _WARDS = _STATED["weights"], _STATED["wards"]
MOST, MOST_DONE, MOST_DRUGS = (_STATED["tables"][name]["at_most"] for name in TABLES[1:])
_ATTRIBUTES = {name: _STATED["tables"][name]["schema"]["attributes"] for name in TABLES}
_FIRST, *_, _LAST = _ATTRIBUTES["visits"]["date"]["edges"]
_DAYS = np.arange(_FIRST, _LAST, dtype="datetime64[D]")


def hospital(*tables: str) -> Tree:
    """What is publicly known of these of its `TABLES`, or of all, and of wards."""
    chosen = {name: _STATED["tables"][name] for name in TABLES if name in tables or not tables}
    return Tree.from_dict(chosen | ({"wards": _WARDS} if "procedures" in chosen else {}))


def generate_visits(patients: int = PATIENTS, *, seed: int = 0) -> Iterator[dict[str, pl.DataFrame]]:
    """All tables of a hospital by name, drawn one block of patients at a time.

    The tables of fewer patients are the beginnings of those of more, of the same seed.

    >>> [(block["patients"].height, block["patients"].columns[0]) for block in generate_visits(10_000)]
    [(8192, 'patient_id'), (1808, 'patient_id')]
    """
    drawn = blocks(patients, seed, stream=_STREAM, block_rows=_BLOCK, name="patients")
    return (_draw(rng, first, patients) for rng, first in drawn)


def _draw(rng: np.random.Generator, first: int, patients: int) -> dict[str, pl.DataFrame]:
    ailment = choose(rng, _WEIGHTS["ailment"], rows=_BLOCK)
    frailty = rng.normal(0.0, 1.0, _BLOCK) + 0.35 * (ailment > 0)
    age = np.clip(44 + 13 * frailty + 6 * (ailment > 0) + rng.normal(0, 12, _BLOCK), 0, 100).astype(np.int64)
    sex = (rng.random(_BLOCK) < 0.42 + 0.10 * (ailment == 2) + 0.06 * (ailment == 3)).astype(np.intp)
    region = choose(
        rng, np.array([20, 14, 15, 9, 4, 13, 14, 11]) * (1 + 0.6 * np.eye(len(_WEIGHTS["ailment"]), 8)), ailment
    )
    insurance = choose(rng, [[0.58, 0.24, 0.10, 0.08], [0.42, 0.34, 0.20, 0.04]], (age > 50).astype(np.intp))
    chronic = choose(rng, _WEIGHTS["chronic"], ailment)
    smoker = choose(rng, _WEIGHTS["smoker"], ailment)
    rate = np.exp(1.3 + 0.42 * frailty + 0.25 * (ailment > 0) - 0.35 * (insurance == 3))
    number = np.clip(1 + rng.poisson(rng.gamma(2.5, 1 / 2.5, _BLOCK) * rate), 1, MOST)
    number = np.where(rng.random(_BLOCK) < 0.05, 0, number)
    key = first + 1 + np.arange(_BLOCK)
    people = _frame({KEY: key}, "patients", (age, sex, region, insurance, chronic, smoker))
    owner = np.repeat(np.arange(_BLOCK), number)
    rows = owner.size
    types, dates = _course(rng, number, frail=frailty > 0.8, winter=0.3 + 0.5 * (ailment == 3))
    # One visit in eight is about something else.
    about = np.where(rng.random(rows) < 0.125, choose(rng, _WEIGHTS["ailment"], rows=rows), ailment[owner])
    urgent = (types == 1) & (rng.random(rows) < 0.5)
    department = np.where(urgent, 7, choose(rng, _WEIGHTS["department"], about))
    diagnosis = choose(rng, _WEIGHTS["diagnosis"], department)
    weak = 1.4 * frailty[owner] + np.array(_WEIGHTS["grave"])[types] + 0.3 * (age[owner] > 65)
    stays = (types == 2) | ((types == 1) & (rng.random(rows) < 1 / (1 + np.exp(2.0 - weak))))
    days = np.where(stays, np.minimum(1 + rng.poisson(np.exp(0.5 + 0.45 * weak)), 60), 0)
    price = 4.3 + 0.7 * (about == 2) + 0.5 * (about == 4) + 0.3 * (diagnosis % 2) + 0.5 * (insurance[owner] == 2)
    cost = np.minimum(np.exp(price + 0.75 * np.log1p(days) + 0.2 * (types == 1) + rng.normal(0, 0.35, rows)), 99_999)
    worse = np.digitize(weak + rng.normal(0, 0.3, rows) + 0.5 * np.log1p(days), [0.8, 2.2, 3.6])
    outcome = choose(rng, _WEIGHTS["outcome"], worse)
    of_visits = (dates, types, department, diagnosis, days, cost.astype(np.int64), outcome)
    visit = key[owner] * (MOST + 1) + np.arange(rows) - np.repeat(np.cumsum(number) - number, number)
    times = np.minimum(rng.poisson(np.array(_WEIGHTS["done"])[types] * (1 + 0.4 * (worse > 1))), MOST_DONE)
    at = np.repeat(np.arange(rows), times)
    done = choose(rng, _WEIGHTS["procedure"], types[at])
    minutes = np.clip(np.exp(2.6 + 0.25 * (done % 4) + 0.2 * worse[at] + rng.normal(0, 0.5, at.size)), 5, 360)
    of_procedures = (done, 2 * department[at] + (rng.random(at.size) < 0.4), minutes.astype(np.int64))
    often = np.exp(0.35 * frailty - 0.3) * (0.4 + 0.3 * number)
    given = np.minimum(rng.poisson(rng.gamma(2.0, 0.5, _BLOCK) * often), MOST_DRUGS)
    whose = np.repeat(np.arange(_BLOCK), given)
    drug = choose(rng, _WEIGHTS["drug"], np.where(rng.random(whose.size) < 0.2, 0, ailment[whose]))
    supply = np.array([7, 14, 28, 30, 56, 90])[np.minimum(rng.binomial(5, 0.3 + 0.04 * (drug % 6)), 5)]
    made = {
        "patients": people,
        "visits": _frame({KEY: key[owner], VISIT: visit}, "visits", of_visits),
        "procedures": _frame({KEY: key[owner[at]], VISIT: visit[at]}, "procedures", of_procedures),
        "prescriptions": _frame({KEY: key[whose]}, "prescriptions", (drug, supply)),
    }
    return {name: frame.filter(pl.col(KEY) <= patients) for name, frame in made.items()}


def _course(
    rng: np.random.Generator, number: npt.NDArray[np.int64], *, frail: npt.NDArray[np.bool_], winter: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.datetime64]]:
    """The types and the dates of all visits, patient after patient, each in order: a Markov chain with gaps.

    `winter` is by how much more often a patient comes first in January than on average, and less in July.
    """
    types, waits = (np.empty((number.size, MOST), dtype=np.intp) for _ in range(2))
    types[:, 0], kinds = choose(rng, _WEIGHTS["first_type"], frail.astype(np.intp)), len(_WEIGHTS["gap"])
    pace = rng.normal(0.0, 0.4, number.size) - 0.3 * frail
    for at in range(1, MOST):
        before = types[:, at - 1]
        types[:, at] = choose(rng, np.concatenate(_WEIGHTS["next_type"]), before + kinds * frail)
        waits[:, at] = np.clip(np.exp(np.log(_WEIGHTS["gap"])[before] + pace + rng.normal(0.0, 0.9, pace.size)), 1, 365)
    waits[:, 0] = 0
    since, whole = np.cumsum(waits, axis=1), _DAYS.size
    last = np.take_along_axis(since, np.maximum(number - 1, 0)[:, None], axis=1)
    since = np.where(last < whole, since, since * (whole - 1) // np.maximum(last, 1))
    tried = (rng.random((number.size, 4)) * np.maximum(whole - last, 1)).astype(np.int64)
    chance = np.cumsum(1 + winter[:, None] * np.cos(2 * np.pi * (tried - 15) / 365.25), axis=1)
    pick = (rng.random(number.size)[:, None] * chance[:, -1:] > chance).sum(axis=1)
    come, days = np.arange(MOST) < number[:, None], np.take_along_axis(tried, pick[:, None], axis=1) + since
    return types[come], _DAYS[days[come]]


def _frame(keys: Mapping[str, npt.NDArray[Any]], table: str, columns: Sequence[npt.NDArray[Any]]) -> pl.DataFrame:
    """Rows with their keys: numbers as they are, texts by the place of their level."""
    levels = {name: own.get("values", _WARDS["public"].get(name)) for name, own in _ATTRIBUTES[table].items()}
    named = zip(levels.items(), columns, strict=True)
    return pl.DataFrame({**keys, **{name: np.array(own)[each] if own else each for (name, own), each in named}})
