"""Whether inference from a released model holds: coverage of intervals and Type I errors over simulated releases.

    python -m experiments.inference --times 500

Noisy tables are drawn anew for every release by the kernel's own noise, the model is fitted as a release fits it, and
every question is asked twice: of the model (`model.infer`), and of the synthetic rows as if they were real, with the
estimator and the robust standard error that statistics packages have. The truth is that of the confidential table
(Adult), or of the population that a new table is drawn from for every release (the generated census).

A column is shuffled anew for every release, so that it is independent of all others: tests of that are Type I errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments import data, record
from experiments.rules import with_rules
from sklar.answer.infer import answer_to, ask
from sklar.answer.infer.inquiry import Inquiry
from sklar.answer.infer.onestep import Linearized, OneStep
from sklar.answer.infer.reference import Reference
from sklar.answer.infer.result import Figure, Target
from sklar.answer.predicate import QueryError
from sklar.budget.method import Method
from sklar.draw.repair import sample_codes
from sklar.files.model import Model
from sklar.files.write import write_text
from sklar.kernel.count import Counts
from sklar.kernel.theorems import Budget, Neighbors
from sklar.kernel.vault import Vault
from sklar.public.rules import violating
from sklar.public.schema import Schema
from sklar.release import fit_tables, measure, measure_stages
from sklar.rows.encode import encode
from sklar.rows.read import open_source

Codes = NDArray[np.int64]

EPSILONS = (0.3, 1.0, 4.0)
POPULATION_ROWS = 400_000
TABLE_ROWS = 20_000
SAVE_EVERY = 10
LEVEL = 0.95

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
_CENSUS_COLUMNS = ("region", "age", "sex", "marital_status", "children", "education", "employed", "income")
_ADULT_COLUMNS = ("age", "workclass", "education-num", "marital-status", "race", "sex", "hours-per-week", "income")


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


def counts_of(codes: Codes, schema: Schema) -> Counts:
    """Exact counts of codes, which an experiment may look at."""
    cells = schema.cells
    dummies = np.zeros((len(codes), cells.n_levels), dtype=np.float32)
    dummies[np.arange(len(codes))[:, None], codes + cells.offsets[:-1]] = 1.0
    # Single precision holds these counts exactly: they are below 2**24.
    together = (dummies.T @ dummies).astype(np.int64)
    return Counts(n_rows=len(codes), one_way=np.diag(together).copy(), pairs=cells.flat(together))


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


class AsIfReal(Inquiry):
    """The same question asked of rows as if they were a sample without noise: the classical answer.

    Which categories are too rare is the release's matter still, so that all three are about the same coefficients.
    """

    def __init__(self, inquiry: Inquiry, rows: Rows) -> None:
        vars(self).update(vars(inquiry))
        self.target, self.population = "population", True
        self.notes, self.cautions = [], []
        self.rows, self.reference = len(rows.codes), rows.reference(self.where)

    def one_step(self, linear: Linearized) -> OneStep:
        """What the rows say, with the errors of independent rows."""
        weights = self.reference.union
        psi = linear.influence(self.reference.codes)
        psi = psi - weights @ psi
        none = np.zeros((psi.shape[1], psi.shape[1]))
        sampling = (psi * weights[:, None]).T @ psi / self.rows
        return OneStep(values=linear.values, noise=none, sampling=sampling, model=none, measured=np.ones(psi.shape[1]))


def chi_square(rows: Codes, first: int, second: int) -> float:
    """The p-value of the classical test of independence."""
    from scipy.stats import chi2_contingency

    table = np.zeros((rows[:, first].max() + 1, rows[:, second].max() + 1))
    np.add.at(table, (rows[:, first], rows[:, second]), 1)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return float(chi2_contingency(table, correction=False).pvalue)


def simulate(case: Case, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """One release: what every question's figures came to, one record each."""
    rows = case.draw(generator)
    budget = Budget(epsilon=case.epsilon, neighbors=case.neighbors)
    vault = Vault(budget)
    schema = case.schema.measured
    vault.hold(counts_of(rows[:, measured_columns(case.schema)], schema), schema.cells)
    model = fit_tables(measure_stages(vault, schema, budget, Method()))
    yield from judge(case, model, generator)


def measured_columns(schema: Schema) -> list[int]:
    """The places of the attributes that are measured."""
    return [schema.names.index(name) for name in schema.measured.names]


def judge(case: Case, model: Model, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """All questions to one model, beside the same rows as if they were real and beside the truth."""
    seed = int(generator.integers(2**31))
    synthetic = np.concatenate([block.T for block in sample_codes(model.copula, model.n_rows, seed)]).astype(np.int64)
    drawn = Rows(synthetic, model.measured_schema.sizes)
    for kind, questions in case.questions.items():
        for question in questions:
            try:
                inquiry = ask(model, question, target=case.target)
                ours = answer_to(inquiry).figures
            except QueryError:
                yield {"kind": kind, "question": question, "refused": 1}
                continue
            real = answer_to(AsIfReal(inquiry, case.truth)).figures
            naive = answer_to(AsIfReal(inquiry, drawn)).figures
            yield from compared(kind, question, ours, naive, real)
    if case.shuffled is not None:
        place = case.schema.names.index(case.shuffled)
        for other, name in enumerate(case.schema.names):
            if other != place:
                found = answer_to(ask(model, f"independent({case.shuffled}, {name})")).test
                if found is None:
                    continue
                yield {
                    "kind": "independence",
                    "question": f"independent({case.shuffled}, {name})",
                    "n": 1,
                    "ours": int(found.p_value < 1 - LEVEL),
                    "naive": int(chi_square(synthetic, place, other) < 1 - LEVEL),
                }


def compared(
    kind: str, question: str, ours: Sequence[Figure], naive: Sequence[Figure], real: Sequence[Figure]
) -> Iterator[dict[str, Any]]:
    """Whether intervals hold the truth. Intercepts are left out; so are groups too small to tell from noise."""
    for mine, theirs, true in zip(ours, naive, real, strict=True):
        if mine.name == "(intercept)":
            continue
        at = true.estimate
        bounded = mine.low is not None and mine.high is not None
        yield {
            "kind": kind,
            "question": question,
            "n": 1,
            "ours": int(not bounded or mine.low <= at <= mine.high),  # type: ignore[operator]
            "naive": int(theirs.low is not None and theirs.low <= at <= (theirs.high or 0.0)),
            "unbounded": int(not bounded),
            "z": (mine.estimate - at) / mine.standard_error if mine.standard_error else 0.0,
            "wider": mine.standard_error / theirs.standard_error if theirs.standard_error else 0.0,
            "measured": mine.measured,
        }


class Tally:
    """Sums of records by case, kind and question; written as they grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sums: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        self.releases: dict[str, int] = {}
        if path.is_file():
            held = json.loads(path.read_text())
            self.sums, self.releases = held["sums"], held["releases"]

    def add(self, case: str, found: Sequence[Mapping[str, Any]]) -> None:
        """Add the records of one release."""
        for each in found:
            place = self.sums.setdefault(case, {}).setdefault(each["kind"], {}).setdefault(each["question"], {})
            for key, value in each.items():
                if key not in ("kind", "question"):
                    place[key] = place.get(key, 0.0) + value
            if "z" in each:
                place["zz"] = place.get("zz", 0.0) + each["z"] ** 2
        self.releases[case] = self.releases.get(case, 0) + 1

    def save(self) -> None:
        """Write all sums, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps({"sums": self.sums, "releases": self.releases}) + "\n")


def census_cases() -> list[Case]:
    """A population of 400,000 generated people, of whom every release has 20,000 others."""
    with data.generated("census", POPULATION_ROWS) as dataset:
        schema = part_of(dataset.schema, _CENSUS_COLUMNS)
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
    other = replace(plain[1], name="census, epsilon 1, add-remove", neighbors="add-remove")
    return [*plain, other]


def adult_cases(folder: Path | None) -> list[Case]:
    """Adult itself, eight attributes of it; and with rules, on the rows that honor them."""
    dataset = data.from_folder("adult", folder)
    schema = part_of(dataset.schema, _ADULT_COLUMNS)
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
    names = (*_ADULT_COLUMNS[:2], "education", *_ADULT_COLUMNS[2:4], "relationship", *_ADULT_COLUMNS[5:])
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


def run_private(tally: Tally, times: int, generator: np.random.Generator) -> None:
    """Releases that find the domains of age and income themselves: the truth is of the coding that they found."""
    name = "census, epsilon 1, private domains"
    with data.generated("census", TABLE_ROWS) as dataset:
        schema = part_of(dataset.schema, _CENSUS_COLUMNS)
        document = schema.to_dict()
        document["attributes"]["age"] = {"type": "integer", "bounds": [0, 120], "domain": "private"}
        frame = pl.read_parquet(dataset.path)
    private = Schema.from_dict(document)
    questions = {
        "means": ("mean(age)", "mean(age) by sex"),
        "differences": ("difference of mean(age) by sex", "difference of mean(age) by employed"),
        "correlations": ("corr(age, children)",),
        "linear regressions": ("children ~ age + sex",),
        "logistic regressions": ("employed ~ age + sex",),
    }
    while tally.releases.get(name, 0) < times:
        model = fit_tables(measure(frame, private, Budget(epsilon=1.0)))
        codes = encode(frame.select(model.schema.names), model.schema)
        rows = codes.T[(codes >= 0).all(axis=0)].astype(np.int64)
        case = Case(
            name=name,
            schema=model.schema,
            epsilon=1.0,
            target="table",
            questions=questions,
            shuffled=None,
            draw=lambda _generator, rows=rows: rows,  # type: ignore[misc]
            truth=Rows(rows, model.schema.sizes),
        )
        tally.add(name, list(judge(case, model, generator)))
        if tally.releases[name] % SAVE_EVERY == 0:
            tally.save()
    tally.save()


def run(tally: Tally, cases: Sequence[Case], times: int, generator: np.random.Generator) -> None:
    """Releases of every case in turn, until each has been released so often."""
    while any(tally.releases.get(case.name, 0) < times for case in cases):
        for case in cases:
            if tally.releases.get(case.name, 0) < times:
                tally.add(case.name, list(simulate(case, generator)))
        if min(tally.releases[case.name] for case in cases) % SAVE_EVERY == 0:
            tally.save()
    tally.save()


def markdown(tally: Tally) -> str:
    """The tables of the page."""
    cases = [case for case in tally.sums if tally.releases[case] > 0]
    kinds = [kind for kind in CENSUS if any(kind in tally.sums[case] for case in cases)]
    coverage, single = [], []
    for case in cases:
        row: list[object] = [f"{case} ({tally.releases[case]:,})"]
        for kind in kinds:
            found = _summed(tally.sums[case].get(kind, {}))
            row.append(f"**{found['ours']:.1%}** / {found['naive']:.0%}" if found.get("n") else "")
        coverage.append(row)
    for case in cases:
        for kind in kinds:
            for question, sums in tally.sums[case].get(kind, {}).items():
                if not sums.get("n"):
                    single.append([case, f"`{question}`", "", "", "", "", "all refused"])
                    continue
                refused = sums.get("refused", 0.0)
                asked = tally.releases[case]
                single.append(
                    [
                        case,
                        f"`{question}`",
                        f"{sums['ours'] / sums['n']:.1%}",
                        f"{sums['naive'] / sums['n']:.0%}",
                        f"{sums['wider'] / sums['n']:.1f}",
                        f"{sums['measured'] / sums['n']:.0%}",
                        f"{refused / asked:.0%}" if refused else "",
                    ]
                )
    tests = []
    for case in cases:
        found = _summed(tally.sums[case].get("independence", {}))
        if found.get("n"):
            tests.append([case, f"{found['tests']:,.0f}", f"**{found['ours']:.1%}**", f"{found['naive']:.0%}"])
    return f"""# Inference: does it hold?

Coverage of 95% intervals over simulated releases (their number in parentheses), *ours* / *synthetic rows analyzed as if
they were real*. Census: the target is the population of {POPULATION_ROWS:,} generated people, from which every release
draws a new table of {TABLE_ROWS:,} rows; eight attributes. Adult: the target is the table itself, 32,561 rows, eight
attributes. Noise is the kernel's, the model is fitted anew for every release, and a share of 1,000 releases has a
standard error of 0.7 points. *Private domains*: the release finds the bins of age; the target is the table as they code
it. *Rules*: education determines education-num, and husbands and wives have a sex and a marital status.

{record.table(["case (releases)", *kinds], coverage)}

Type I errors: how often independence from a shuffled column is rejected at 5%.

{record.table(["case", "tests", "`sklar infer`", "chi-square on synthetic rows"], tests)}

## Question by question

*Wider*: our standard error over that of the synthetic rows as if they were real. *Measured*: the share of the statistic
that noisy tables speak of (R^2). *Refused*: releases in which the regression was refused, because noise hides how the
regressors vary together; they are not in the coverage.

{record.table(["case", "question", "ours", "as if real", "wider", "measured", "refused"], single)}
"""


def _summed(questions: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Shares over all questions of a kind, every question weighing the same."""
    held = [sums for sums in questions.values() if sums.get("n")]
    if not held:
        return {}
    shares = {key: sum(sums[key] / sums["n"] for sums in held) / len(held) for key in ("ours", "naive")}
    return {**shares, "n": float(len(held)), "tests": sum(sums["n"] for sums in held)}


@click.command()
@record.options
@click.option("--times", type=int, default=1000, show_default=True, help="Releases of each case.")
@click.option("--fewer", type=int, default=200, show_default=True, help="Releases with rules or private domains.")
@click.option(
    "--table", "tables", type=click.Choice(["census", "adult", "private"]), multiple=True, help="Only these tables."
)
@click.option("--page", "only_page", is_flag=True, help="Write the page from what was saved, and run nothing.")
def main(
    data_folder: Path | None, out: Path, *, times: int, fewer: int, tables: tuple[str, ...], only_page: bool
) -> None:
    """Coverage and Type I errors of inference. What was done is saved as it goes; a second run goes on from there."""
    generator = np.random.default_rng()
    wanted = tables or ("census", "adult", "private")
    saved = [out / "inference" / f"{name}.json" for name in ("census", "adult", "private")]
    if not only_page:
        if "census" in wanted:
            run(Tally(saved[0]), census_cases(), times, generator)
        if "adult" in wanted:
            *plain, ruled = adult_cases(data_folder)
            run(Tally(saved[1]), [ruled], fewer, generator)
            run(Tally(saved[1]), plain, times, generator)
        if "private" in wanted:
            run_private(Tally(saved[2]), fewer, generator)
    whole = Tally(saved[0])
    for path in saved[1:]:
        part = Tally(path)
        whole.sums |= part.sums
        whole.releases |= part.releases
    document = {"header": record.header("inference"), "results": {"releases": whole.releases, "sums": whole.sums}}
    record.write(out, "inference", document=document, markdown=markdown(whole))


if __name__ == "__main__":
    main()
