"""Whether inference from a released model holds: coverage of intervals and Type I errors over simulated releases.

    python -m experiments.inference

A release is simulated in full: noisy tables by the kernel's own noise, the model fitted as a release fits it. Every
question is then asked of the model (`model.infer`), and of the synthetic rows as if they were real, with the estimator
and the robust standard error that statistics packages have. The truth is that of the confidential table (Adult), or of
the population that a new table is drawn from for every release (the generated census). Shares, means and differences,
which depend on noisy tables alone, are also asked of many releases whose tables are drawn directly (`drawn`).

A column is shuffled anew for every release, so that it is independent of all others: tests of that are Type I errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from benchmarks.pages import kept

from experiments import data, record, truths
from experiments.asked import (
    CENSUS,
    CENSUS_COLUMNS,
    POPULATION_ROWS,
    TABLE_ROWS,
    Case,
    Codes,
    Rows,
    adult_cases,
    census_cases,
    counts_of,
    measure_counts,
    measured_columns,
    part_of,
)
from experiments.drawn import LINEAR, Again, draw_again, draw_many, test_many
from experiments.figures import dots
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Figure, Inquiry
from sklar.answer.infer.onestep import Linearized, OneStep
from sklar.answer.predicate import QueryError
from sklar.draw.repair import sample_codes
from sklar.files.model import Model, fit_tables
from sklar.files.write import write_text
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema
from sklar.release import measure
from sklar.rows.encode import encode

SAVE_EVERY = 5
SAVED = kept("inference")
LEVEL = 0.95
HEAD = ("case", "question", "ours", "intervals", "of fitted ones", "as if real", "wider", "measured", "refused")


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
        whole = (psi * weights[:, None]).T @ psi
        sampling = whole / self.rows
        return OneStep(
            values=linear.values,
            noise=none,
            sampling=sampling,
            model=none,
            influence=whole,
            beyond=none,
            offset=linear.values,
            coefficients={},
        )


class Watched(Inquiry):
    """The question as it is asked, remembering the estimates that its answer is made of."""

    found: OneStep

    def __init__(self, inquiry: Inquiry) -> None:
        vars(self).update(vars(inquiry))

    def one_step(self, linear: Linearized) -> OneStep:
        """The estimates, which are remembered."""
        self.found = super().one_step(linear)
        return self.found


def chi_square(rows: Codes, first: int, second: int) -> float:
    """The p-value of the classical test of independence."""
    from scipy.stats import chi2_contingency

    table = np.zeros((rows[:, first].max() + 1, rows[:, second].max() + 1))
    np.add.at(table, (rows[:, first], rows[:, second]), 1)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return float(chi2_contingency(table, correction=False).pvalue)


def release(case: Case, generator: np.random.Generator) -> Model:
    """A model of a table that is drawn anew, measured with fresh noise."""
    rows = case.draw(generator)
    budget = Budget(epsilon=case.epsilon, neighbors=case.neighbors)
    schema = case.schema.measured
    return fit_tables(measure_counts(counts_of(rows[:, measured_columns(case.schema)], schema), schema, budget))


def judge(case: Case, model: Model, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """All questions to one model, beside the same rows as if they were real and beside the truth."""
    seed = int(generator.integers(2**31))
    synthetic = np.concatenate([block.T for block in sample_codes(model.copula, model.n_rows, seed)]).astype(np.int64)
    drawn = Rows(synthetic, model.measured_schema.sizes)
    again: list[Again] = []
    for kind, questions in case.questions.items():
        for question in questions:
            try:
                inquiry = Watched(Inquiry(model, question, target=case.target))
                ours = answer_to(inquiry).figures
            except QueryError:
                yield {"kind": kind, "question": question, "releases": 1, "refused": 1}
                continue
            yield {"kind": kind, "question": question, "releases": 1}
            real = answer_to(AsIfReal(inquiry, case.truth)).figures
            naive = answer_to(AsIfReal(inquiry, drawn)).figures
            yield from compared(kind, question, ours, naive, real)
            if kind not in LINEAR and not inquiry.asked.by:
                again.append(Again(kind=kind, question=question, found=inquiry.found, ours=ours, real=real))
    yield from draw_again(case, model, again, generator)
    if case.shuffled is not None:
        place = case.schema.names.index(case.shuffled)
        for other, name in enumerate(case.schema.names):
            if other != place:
                found = answer_to(Inquiry(model, f"independent({case.shuffled}, {name})")).test
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
            "wider": mine.standard_error / theirs.standard_error if bounded and theirs.standard_error else 0.0,
            "measured": mine.measured,
        }


class Tally:
    """Sums of records by case, kind and question; written as they grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sums: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        self.releases: dict[str, int] = {}
        self.drawn: dict[str, int] = {}
        if path.is_file():
            held = json.loads(path.read_text())
            self.sums, self.releases, self.drawn = held["sums"], held["releases"], held["drawn"]

    def add(self, case: str, found: Sequence[Mapping[str, Any]]) -> None:
        """Add records."""
        for each in found:
            place = self.sums.setdefault(case, {}).setdefault(each["kind"], {}).setdefault(each["question"], {})
            for key, value in each.items():
                if key not in ("kind", "question"):
                    place[key] = place.get(key, 0.0) + value
            if "z" in each:
                place["zz"] = place.get("zz", 0.0) + each["z"] ** 2

    def save(self) -> None:
        """Write all sums, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps({"sums": self.sums, "releases": self.releases, "drawn": self.drawn}) + "\n")


def run_private(tally: Tally, times: int, generator: np.random.Generator) -> None:
    """Releases that find the domains of age and income themselves: the truth is of the coding that they found."""
    name = "census, epsilon 1, private domains"
    with data.generated("census", TABLE_ROWS) as dataset:
        schema = part_of(dataset.schema, CENSUS_COLUMNS)
        document = schema.to_dict()
        document["attributes"]["age"] = {"type": "integer", "low": 0, "high": 120, "domain": "private"}
        frame = pl.read_parquet(dataset.path)
        # Rows that have a level of every attribute, as the other cases do.
        frame = frame.filter(pl.Series((encode(frame.select(schema.names), schema) >= 0).all(axis=0)))
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
        tally.releases[name] = tally.releases.get(name, 0) + 1
        if tally.releases[name] % SAVE_EVERY == 0:
            tally.save()
    tally.save()


def run(
    tally: Tally, cases: Sequence[Case], times: int, direct: int, tested: int, generator: np.random.Generator
) -> None:
    """Directly drawn tables of every case first, then releases of every case in turn, until each has so many.

    `tested` is the number of directly drawn tables whose columns are tested for independence.
    """
    for case in cases:
        missing = direct - tally.drawn.get(case.name, 0)
        if missing > 0:
            model = release(case, generator)
            questions = [question for kind in LINEAR for question in case.questions.get(kind, ())]
            truths = {
                question: list(answer_to(AsIfReal(Inquiry(model, question), case.truth)).figures)
                for question in questions
            }
            tally.add(case.name, list(draw_many(case, model, truths, missing, generator)))
            tally.drawn[case.name] = tally.drawn.get(case.name, 0) + missing
            tally.save()
        tests = tally.sums.get(case.name, {}).get("independence", {})
        missing = tested - int(max((sums.get("drawn", 0.0) for sums in tests.values()), default=0.0))
        if missing > 0 and case.shuffled is not None:
            tally.add(case.name, list(test_many(case, release(case, generator), missing, generator)))
            tally.save()
    while any(tally.releases.get(case.name, 0) < times for case in cases):
        for case in cases:
            if tally.releases.get(case.name, 0) < times:
                tally.add(case.name, list(judge(case, release(case, generator), generator)))
                tally.releases[case.name] = tally.releases.get(case.name, 0) + 1
        if min(tally.releases[case.name] for case in cases) % SAVE_EVERY == 0:
            tally.save()
    tally.save()


def markdown(tally: Tally) -> str:
    """The tables of the page."""
    cases = [case for case in tally.sums if tally.releases.get(case, 0) + tally.drawn.get(case, 0)]
    kinds = [kind for kind in CENSUS if any(kind in tally.sums[case] for case in cases)]
    coverage, single, tests = [], [], []
    for case in cases:
        questions = tally.sums[case]
        numbers = f"{tally.releases.get(case, 0):,}; {tally.drawn.get(case, 0):,}"
        coverage.append([f"{case} ({numbers})", *(_both(questions.get(kind, {})) for kind in kinds)])
        for kind in kinds:
            single += [_line(case, question, sums) for question, sums in questions.get(kind, {}).items()]
        found = questions.get("independence", {})
        if found:
            number = sum(sums.get("n", 0.0) + sums.get("drawn", 0.0) for sums in found.values())
            ours = sum(sums.get("ours", 0.0) + sums.get("drawn_ours", 0.0) for sums in found.values()) / number
            tests.append([case, f"{number:,.0f}", f"**{ours:.1%}**", f"{_mean(found, 'naive', 'n'):.0%}"])
    return f"""# Inference: does it hold?

How often the 95% intervals of `sklar infer` hold the truth, and how often those hold that treat synthetic rows as real
ones. Each dot of the picture is a kind of question, over all cases. Below are also tests of independence where there
is none.

{record.table(["case (fitted; drawn)", *kinds], coverage)}

Type I errors: how often independence from a shuffled column is rejected at 5%, for each of the other columns, with
tables and noise drawn anew.

{record.table(["case", "tests", "`sklar infer`", "chi-square on synthetic rows"], tests)}

## Question by question

*Of fitted ones*: the same without further draws, one set of noisy tables for each model. *Wider*: our standard error
over that of the synthetic rows as if they were real. *Measured*: the share of the statistic that noisy tables speak of
(R^2). *Refused*: releases whose regression is refused, because noise hides how the regressors vary together; they are
not in the coverage.

{record.table(HEAD, single)}

## Methods

Releases are simulated, and each is asked the questions above. Coverage of 95% intervals: **ours** / synthetic rows
analyzed as if they were real. In parentheses: the number of releases that were fitted, from which all synthetic rows
are; and of those whose noisy tables alone were drawn, for our means, shares and differences. What else needs a fit was
asked of every fitted model with up to 50 further draws of the noisy tables (and, for the census, 12 of the table): the
last table has the number of intervals.

- *Census*: the target is the population of {POPULATION_ROWS:,} generated people, from which every release draws a new
  table of {TABLE_ROWS:,} rows. *Adult*: the target is the table of 32,561 rows itself. Eight attributes of each.
- *Rules*: education determines education-num; husbands and wives have a sex and a marital status. *Private domains*:
  the release finds the bins of age, and the target is the table as they code it.
- Every figure of a question counts: each group of a mean, each coefficient of a regression but its intercept.
"""


def figure(tally: Tally) -> Any:
    """Coverage by kind of question, the mean over cases: of ours, and of synthetic rows analyzed as if real."""
    series: dict[str, dict[str, float]] = {"sklar infer": {}, "synthetic rows as if real": {}}
    for kind in CENSUS:
        found = [tally.sums[case][kind] for case in tally.sums if kind in tally.sums[case]]
        for name, held in zip(series, ("ours", "naive"), strict=True):
            shares = [share for each in found if (share := _mean(each, held, "n")) == share]
            if shares:
                series[name][kind] = sum(shares) / len(shares)
    return dots("Coverage of 95% intervals", "share that hold the truth", series, line=0.95)


def _mean(questions: Mapping[str, Mapping[str, float]], held: str, number: str) -> float:
    """A share over all questions of a kind, every question weighing the same."""
    shares = [sums[held] / sums[number] for sums in questions.values() if sums.get(number)]
    return sum(shares) / len(shares) if shares else float("nan")


def _both(questions: Mapping[str, Mapping[str, float]]) -> str:
    """Coverage of our intervals and of those of synthetic rows."""
    if not questions:
        return ""
    direct = any(sums.get("drawn") for sums in questions.values())
    ours = _mean(questions, *(("drawn_ours", "drawn") if direct else ("ours", "n")))
    return f"**{ours:.1%}** / {_mean(questions, 'naive', 'n'):.0%}".replace("nan%", "-")


def _line(case: str, question: str, sums: Mapping[str, float]) -> list[object]:
    asked, refused = sums.get("n", 0.0), sums.get("refused", 0.0)
    ours = sums["drawn_ours"] / sums["drawn"] if sums.get("drawn") else sums["ours"] / asked if asked else None
    cells: list[object] = [case, f"`{question}`", "" if ours is None else f"{ours:.1%}", f"{sums.get('drawn', 0):,.0f}"]
    if not asked:
        return [*cells, "", "", "", "", "all" if refused else ""]
    return [
        *cells,
        f"{sums['ours'] / asked:.0%} of {asked:,.0f}",
        f"{sums['naive'] / asked:.0%}",
        f"{sums['wider'] / max(asked - sums['unbounded'], 1):.1f}",
        f"{sums['measured'] / asked:.0%}",
        f"{refused / sums['releases']:.0%}" if refused else "",
    ]


@click.command()
@record.options
@click.option("--times", type=int, default=1000, show_default=True, help="Releases of each case that are fitted.")
@click.option("--fewer", type=int, default=200, show_default=True, help="The same with rules or private domains.")
@click.option(
    "--direct", type=int, default=1000, show_default=True, help="Releases whose noisy tables alone are drawn."
)
@click.option("--tested", type=int, default=300, show_default=True, help="Of these, tested for independence.")
@click.option(
    "--table", "tables", type=click.Choice(["census", "adult", "private"]), multiple=True, help="Only these tables."
)
@click.option(
    "--saved",
    type=click.Path(path_type=Path, file_okay=False),
    default=SAVED,
    show_default="build/inference, by tree",
    help="Folder in which results are kept as they come; a second run goes on from there.",
)
@click.option("--page", "only_page", is_flag=True, help="Write the page from what was saved, and run nothing.")
@click.option("--raw", is_flag=True, help="The truth of raw values, people, found domains and three columns, instead.")
@click.option("--releases", type=int, default=30, show_default=True, help="With --raw: of each table, way and epsilon.")
@click.option("--jobs", type=int, default=1, show_default=True, help="With --raw: processes.")
def main(
    data_folder: Path | None,
    out: Path,
    *,
    times: int,
    fewer: int,
    direct: int,
    tested: int,
    tables: tuple[str, ...],
    saved: Path,
    only_page: bool,
    raw: bool,
    releases: int,
    jobs: int,
) -> None:
    """Coverage and Type I errors of inference over simulated releases."""
    if raw:
        if not only_page:
            truths.run(saved / "raw", releases, jobs)
        for line in truths.page(saved / "raw", out):
            click.echo(f"FAILS: {line}")
        return
    generator = np.random.default_rng()
    wanted = tables or ("census", "adult", "private")
    places = {name: saved / f"{name}.json" for name in ("census", "adult", "private")}
    if not only_page:
        if "census" in wanted:
            run(Tally(places["census"]), census_cases(), times, direct, tested, generator)
        if "private" in wanted:
            run_private(Tally(places["private"]), fewer, generator)
        if "adult" in wanted:
            *plain, ruled = adult_cases(data_folder)
            run(Tally(places["adult"]), [ruled], fewer, direct, tested, generator)
            run(Tally(places["adult"]), plain, times, direct, tested, generator)
    whole = Tally(places["census"])
    for name in ("adult", "private"):
        part = Tally(places[name])
        whole.sums |= part.sums
        whole.releases |= part.releases
        whole.drawn |= part.drawn
    results = {"releases": whole.releases, "drawn": whole.drawn, "sums": whole.sums}
    document = {"header": record.header("inference"), "results": results}
    pictures = {"inference": figure(whole)}
    record.write(out, "inference", document=document, markdown=markdown(whole), figures=pictures)


if __name__ == "__main__":
    main()
