"""The tables, releases and questions of the experiment on inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from experiments import data
from experiments.rules import with_rules
from sklar.answer.infer.inquiry import Target
from sklar.answer.infer.onestep import Reference
from sklar.budget.certificate import Measured
from sklar.budget.method import Method
from sklar.budget.plan import TOKENS
from sklar.kernel.cells import Cells
from sklar.kernel.theorems import Budget, Neighbors
from sklar.kernel.vault import Vault
from sklar.machine.progress import SILENT, Progress
from sklar.public.rules import violating
from sklar.public.schema import Schema
from sklar.release import measure_stages
from sklar.rows.count import Ask, Exact
from sklar.rows.encode import encode
from sklar.rows.engines import Measurer
from sklar.rows.read import open_source

Codes = NDArray[np.int64]

EPSILONS = (0.3, 1.0, 4.0)
POPULATION_ROWS = 400_000
TABLE_ROWS = 20_000

# Questions by what they are, for the table's rows.
CENSUS = {
    "means": ("mean(age)", "mean(income)", "mean(children) by sex", "mean(income) by education"),
    "shares": (
        "share(education = 'Doctorate')",
        "share(marital_status = 'Married') by sex",
        "share(employed = true) by education",
        "share(children >= 2 and age >= 50)",
    ),
    "differences": (
        "difference of mean(income) by sex",
        "difference of mean(age) by employed",
        "difference of share(marital_status = 'Married') by sex",
    ),
    "correlations": ("corr(age, children)", "corr(age, income)"),
    "linear regressions": ("children ~ age + sex", "age ~ children + sex + education", "income ~ age + sex"),
    "logistic regressions": ("employed ~ age + sex", "marital_status = 'Married' ~ age + sex + children"),
    "three-way shares": (
        "share(sex = 'Female' and marital_status = 'Married' and employed = true)",
        "share(age >= 65 and education = 'Vocational' and sex = 'Male')",
        "share(employed = true and children = 0 and marital_status = 'Never married')",
    ),
}
ADULT = {
    "means": ("mean(age)", "mean(hours-per-week)", "mean(hours-per-week) by sex", "mean(age) by workclass"),
    "shares": (
        "share(income = '>50K')",
        "share(income = '>50K') by sex",
        "share(income = '>50K') by marital-status",
        "share(age >= 65 and hours-per-week >= 41)",
    ),
    "differences": (
        "difference of mean(hours-per-week) by sex",
        "difference of share(income = '>50K') by sex",
        "difference of mean(age) by income",
    ),
    "correlations": ("corr(age, hours-per-week)", "corr(education-num, hours-per-week)"),
    "linear regressions": ("hours-per-week ~ age + sex + education-num", "education-num ~ age + sex"),
    "logistic regressions": ("income ~ age + sex", "income ~ age + sex + education-num + hours-per-week"),
    "three-way shares": (
        "share(sex = 'Male' and marital-status = 'Married-civ-spouse' and income = '>50K')",
        "share(age < 30 and sex = 'Female' and marital-status = 'Never-married')",
        "share(education-num >= 13 and sex = 'Female' and income = '>50K')",
    ),
}
CENSUS_COLUMNS = ("region", "age", "sex", "marital_status", "children", "education", "employed", "income")
ADULT_COLUMNS = ("age", "workclass", "education-num", "marital-status", "race", "sex", "hours-per-week", "income")


class Rows:
    """A table of codes, shape (rows, m): how many of its rows have each combination of some attributes' levels."""

    def __init__(self, codes: Codes, sizes: NDArray[np.int64]) -> None:
        self.codes, self._sizes = codes, sizes
        self._seen: dict[tuple[int, ...], Reference] = {}

    def reference(self, where: tuple[int, ...]) -> Reference:
        """The combinations that occur, with their shares."""
        if where not in self._seen:
            sizes = tuple(int(self._sizes[i]) for i in where)
            places = np.ravel_multi_index([self.codes[:, i] for i in where], sizes)
            counts = np.bincount(places, minlength=math.prod(sizes))
            seen = np.flatnonzero(counts)
            self._seen[where] = Reference(
                where=where,
                sizes=sizes,
                codes=np.stack(np.unravel_index(seen, sizes), axis=1),
                weights=(counts[seen] / len(self.codes))[None, :],
                drawn=None,
            )
        return self._seen[where]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One way to release one table, and what is asked of it.

    `draw` gives a table of codes, shape (rows, m), anew for every release; `truth` holds the rows that the target has,
    the confidential table's or the population's, measured attributes alone. `shuffled` names the column that is
    independent of all others.
    """

    name: str
    schema: Schema
    epsilon: float
    target: Target
    questions: Mapping[str, Sequence[str]]
    shuffled: str | None
    draw: Callable[[np.random.Generator], Codes]
    truth: Rows
    neighbors: Neighbors = "replace-one"


def part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """A schema of these attributes alone."""
    return replace(schema, attributes=tuple(schema.attribute(name) for name in names))


def codes_of(path: Path, schema: Schema) -> Codes:
    """The codes of a table's rows, shape (rows, m), without those that have no level of some attribute."""
    source = open_source(path)
    codes = np.concatenate([encode(batch, schema) for batch in source.batches(schema.names)], axis=1)
    return codes.T[(codes >= 0).all(axis=0)].astype(np.int64)


class Counted:
    """Exact counts in place of a table that is counted: an experiment may look at them."""

    name, columns, n_rows, reads_again = "counts", (), None, False

    def __init__(self, counts: Exact) -> None:
        self._counts = counts

    def count(self, ask: Ask, *, progress: Progress = SILENT) -> Exact:  # noqa: ARG002
        """The counts, whatever is asked: codes tell no more of where numbers lie in bins than that it is the middle."""
        if not ask.inside:
            return self._counts
        levels, held = Cells([each.n_levels for each in ask.attributes]), np.zeros(0, dtype=np.int64)
        for index in ask.inside:
            bins = np.isin(np.arange(ask.attributes[index].n_levels), ask.attributes[index].bin_codes)
            held = np.append(held, TOKENS // 2 * bins * self._counts.one_way[levels.levels(index)])
        return replace(self._counts, tables=(*self._counts.tables, held))


def measure_counts(counts: Exact, schema: Schema, budget: Budget) -> Measured:
    """What a release of these counts measures."""
    return measure_stages(Measurer(cast(Any, Counted(counts)), Vault(budget), schema, budget), Method())


def counts_of(codes: Codes, schema: Schema) -> Exact:
    """Exact counts of codes, which an experiment may look at."""
    cells = schema.cells
    dummies = np.zeros((len(codes), cells.n_levels), dtype=np.float32)
    dummies[np.arange(len(codes))[:, None], codes + cells.offsets[:-1]] = 1.0
    # Single precision holds these counts exactly: they are below 2**24.
    together = (dummies.T @ dummies).astype(np.int64)
    return Exact(n_rows=len(codes), tables=(np.diag(together).copy(), cells.flat(together)))


def census_cases() -> list[Case]:
    """A population of 400,000 generated people, of whom every release has 20,000 others."""
    with data.generated("census", POPULATION_ROWS) as dataset:
        schema = part_of(dataset.schema, CENSUS_COLUMNS)
        population = codes_of(dataset.path, schema)
    place = schema.names.index("region")

    def draw(generator: np.random.Generator) -> Codes:
        rows = population[generator.integers(len(population), size=TABLE_ROWS)]
        rows[:, place] = rows[generator.permutation(len(rows)), place]
        return rows

    plain = [
        Case(
            name=f"census, epsilon {epsilon:g}",
            schema=schema,
            epsilon=epsilon,
            target="population",
            questions=CENSUS,
            shuffled="region",
            draw=draw,
            truth=Rows(population, schema.sizes),
        )
        for epsilon in EPSILONS
    ]
    other = replace(plain[1], name=f"{plain[1].name}, add-remove", neighbors="add-remove")
    return [*plain, other]


def adult_cases(folder: Path | None) -> list[Case]:
    """Adult itself, eight attributes of it; and with rules, on the rows that honor them."""
    dataset = data.from_folder("adult", folder)
    schema = part_of(dataset.schema, ADULT_COLUMNS)
    table = codes_of(dataset.path, schema)
    place = schema.names.index("race")

    def draw(generator: np.random.Generator) -> Codes:
        rows = table.copy()
        rows[:, place] = rows[generator.permutation(len(rows)), place]
        return rows

    plain = [
        Case(
            name=f"Adult, epsilon {epsilon:g}",
            schema=schema,
            epsilon=epsilon,
            target="table",
            questions=ADULT,
            shuffled="race",
            draw=draw,
            truth=Rows(table, schema.sizes),
        )
        for epsilon in EPSILONS
    ]
    names = (*ADULT_COLUMNS[:2], "education", *ADULT_COLUMNS[2:4], "relationship", *ADULT_COLUMNS[5:])
    ruled = with_rules(part_of(dataset.schema, names))
    codes = codes_of(dataset.path, ruled)
    measured = measured_columns(ruled)
    honored = codes[~violating(codes[:, measured].T, ruled.measured.allowed)]
    questions = dict(ADULT) | {
        "three-way shares": ("share(sex = 'Male' and relationship = 'Husband' and income = '>50K')",)
    }
    rules = Case(
        name="Adult, epsilon 1, rules",
        schema=ruled,
        epsilon=1.0,
        target="table",
        questions=questions,
        shuffled=None,
        draw=lambda _generator: honored,
        truth=Rows(honored[:, measured], ruled.measured.sizes),
    )
    return [*plain, rules]


def measured_columns(schema: Schema) -> list[int]:
    """The places of the attributes that are measured."""
    return [schema.names.index(name) for name in schema.measured.names]
