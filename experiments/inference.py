"""Whether inference from a released model holds: coverage of intervals of raw values, and Type I errors.

    python -m experiments.inference --jobs 16
    python -m experiments.inference --page

Every release is a file of sums, and one whose file exists is not made again: a run can be stopped at any time and goes
on, and `--page` says how many intervals each row has so far.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from benchmarks.pages import kept

import sklar
from experiments import record, truths
from experiments.asked import Rows
from experiments.figures import dots
from sklar.answer.effects import Floats
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inference, Inquiry, RecordFunction, Unknown
from sklar.answer.infer.onestep import OneStep
from sklar.answer.predicate import QueryError
from sklar.draw.repair import sample_codes
from sklar.errors import BudgetError
from sklar.files.model import Model
from sklar.files.write import write_text

SAVED = kept("inference")
EPSILONS = (0.5, 1.0, 4.0, 10.0)
# Below this share of intervals that hold, an answer must say CAUTION.
LEAST, ENOUGH = 0.93, 1_000
WAYS = ("raw values", "population", "found", "people", "people, two rows each", "three columns")
# Releases of each table and epsilon, so that a row has enough intervals.
RELEASES = {"raw values": 43, "found": 43, "people": 250, "people, two rows each": 250, "three columns": 40, "alone": 3}
TESTED = ("independent(coin, flag)", "independent(coin, group)", "independent(coin, x)", "independent(coin, y)",
          "coin ~ y", "coin ~ group", "ratio of coin ~ group", "difference of mean(x) by coin")  # fmt: skip
# What a release of everything tells, beside one of these columns alone at the same epsilon.
ALONE = {"mean(x)": "x", "mean(y) by flag": "y flag", "share(group) by flag": "group flag", "corr(x, y)": "x y",
         "y ~ x + flag": "x y flag"}  # fmt: skip
HEAD = ("what", "kind", "epsilon", "intervals", "hold", "of those without CAUTION", "least of a table", "cautioned",
        "bounds", "none", "refused", "")  # fmt: skip
METHODS = """
Every release is a whole one, by `sklar.fit`, of rows that are drawn anew. The truth is that of the table's raw values,
not of their codes: limited to the public edges, or to what an answer says that it is limited to. *Population*: that of
the real table that rows are drawn from. Where people are counted, each person's rows weigh alike up to the limit.
*None*: figures without an interval; *bounds*: what holds whatever was not measured. *Tests of no effect*: p-values of
at least 5% where nothing depends. *Least of a table*: of intervals without CAUTION, the smallest share of any table.
"""
Job = tuple[str, str, float, int, str, str]
Sums = dict[tuple[str, str, float], dict[str, float]]


class AsIfReal(Inquiry):
    """The same question asked of rows as if they were a sample without noise: the classical answer."""

    def __init__(self, inquiry: Inquiry, rows: Rows) -> None:
        vars(self).update(vars(inquiry))
        self.target, self.population = "population", True
        self.notes, self.cautions = [], []
        self.rows, self.reference = len(rows.codes), rows.reference(self.where)
        # Numbers lie in bins as their shapes have them, whatever the other columns are.
        self._tilts = lambda attribute: np.zeros(len(self.reference.codes))  # type: ignore[assignment]  # noqa: ARG005

    def one_step(self, values: Floats, influence: RecordFunction, scale: Floats | None = None) -> OneStep:  # noqa: ARG002
        """What the rows say, with the errors of independent rows."""
        weights, psi = self.reference.union, influence(self.reference.codes)
        psi = psi - weights @ psi
        none, whole = np.zeros((psi.shape[1], psi.shape[1])), (psi * weights[:, None]).T @ psi
        parts = {"noise": none, "model": none, "beyond": none, "sampling": whole / self.rows, "influence": whole}
        return OneStep(values=values, **parts)

    def unknown(self, evaluate: Any, influence: Any) -> Unknown:  # noqa: ARG002
        """Bins hide nothing, so a package says."""
        q = evaluate().size
        return Unknown(np.zeros(q), np.zeros((q, q)), np.zeros((2, q)), np.zeros(q))


def judged(kind: str, found: Inference, true: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Whether intervals hold the truth."""
    if len(found.figures) != len(true):
        # Categories that are too rare were taken together.
        yield {"kind": kind, "refused": 1}
        return
    for figure, at in zip(found.figures, true, strict=True):
        if not np.isfinite(at):
            continue
        if figure.low is None or figure.high is None:
            yield {"kind": kind, "none": 1}
            continue
        slack = 1e-9 * max(abs(at), 1e-9)
        held, told = figure.low - slack <= at <= figure.high + slack, bool(found.cautions)
        yield {
            "kind": kind,
            "n": 1,
            "held": int(held),
            "cautioned": int(told),
            "held_plainly": int(held and not told),
            "bounds": int(figure.bounds),
        }


def ask(model: Model, question: Any, target: str) -> Inference | None:
    """The answer; None where it is refused."""
    try:
        if isinstance(question, str):
            return model.infer(question, target=target)
        function, columns = question
        return model.infer(function, columns=columns, target=target)
    except QueryError:
        return None


def judge(name: str, way: str, epsilon: float, seed: int, folder: str) -> Iterator[dict[str, Any]]:
    """Every question to one release."""
    frame = truths.drawn(name, np.random.default_rng([seed, len(name), round(100 * epsilon), len(way)]), folder)
    schema = truths.schema_of(name, way)
    try:
        model = sklar.fit(frame.select(*schema.names, *(["id"] if schema.person else [])), schema, epsilon=epsilon)
    except BudgetError:
        yield {"kind": "releases", "refused": 1}
        return
    for kind, question, truth in truths.questions_of(name, way, model.schema):
        found = ask(model, question, "table")
        if found is None:
            yield {"kind": kind, "refused": 1}
            continue
        yield from judged(kind, found, truth(truths.columns_of(frame, model.schema, found.limits, way)))
    if way != "raw values":
        return
    whole = truths.columns_of(truths.real(name, folder).with_columns(coin=False), schema, {}, way)
    for kind, question, truth in truths.CORE if name in truths.SOURCES else ():
        # Functions see what measures do; a population has no quantiles of ties.
        if kind not in ("functions of users", "quantiles") and (found := ask(model, question, "population")):
            yield from ({**each, "way": "population"} for each in judged(kind, found, truth(whole)))
    for question in TESTED:
        found = ask(model, question, "population")
        tests = () if found is None else (found.test, *found.joint.values(), *found.figures)
        for test in tests:
            if test is not None and test.p_value is not None:
                told, held = bool(found and found.cautions), test.p_value >= 0.05
                counts = {"n": 1, "held": int(held), "cautioned": int(told), "held_plainly": int(held and not told)}
                yield {"kind": "tests of no effect", **counts}
    if seed % 5 == 0:
        yield from as_if_real(model, truths.columns_of(frame, schema, {}, way))


def as_if_real(model: Model, columns: truths.Columns) -> Iterator[dict[str, Any]]:
    """The same of as many synthetic rows as if they were real."""
    synthetic = np.concatenate([block.T for block in sample_codes(model.copula, model.n_rows, 1)]).astype(np.int64)
    rows = Rows(synthetic, model.measured_schema.sizes)
    for kind, question, truth in truths.CORE:
        if isinstance(question, str) and kind != "quantiles":
            try:
                found = answer_to(AsIfReal(Inquiry(model, question), rows))
            except QueryError:
                continue
            yield from ({**each, "way": "as if real"} for each in judged(kind, found, truth(columns)))


def widths(name: str, epsilon: float, seed: int, folder: str) -> Iterator[dict[str, Any]]:
    """Standard errors in a release of a whole table, over those where all of the budget goes to these columns."""
    frame = truths.drawn(name, np.random.default_rng(seed), folder)
    schema = truths.schema_of(name, "raw values")
    whole = sklar.fit(frame.select(schema.names), schema, epsilon=epsilon)
    for question, names in ALONE.items():
        own = truths.schema_of(name, "raw values", names.split())
        few = ask(sklar.fit(frame.select(own.names), own, epsilon=epsilon), question, "table")
        all_ = ask(whole, question, "table")
        for one, other in zip(all_.figures, few.figures, strict=True) if all_ and few else ():
            if one.name != "(intercept)" and other.standard_error > 0 and other.noise_error > 0:
                wider = {
                    "wider": one.standard_error / other.standard_error,
                    "louder": one.noise_error / other.noise_error,
                }
                yield {"kind": question, "n": 1, **wider}


def run_one(job: Job, end: float) -> None:
    """One release; its sums by way and kind are kept in a file of their own."""
    name, way, epsilon, seed, folder, data_folder = job
    place = Path(folder) / f"{name}-{way.replace(' ', '_').replace(',', '')}-{epsilon:g}-{seed:04d}.json"
    if not place.is_file() and time.monotonic() < end:
        # Of functions that divide by nothing in tables that are drawn from models.
        warnings.simplefilter("ignore", RuntimeWarning)
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        make = widths(name, epsilon, seed, data_folder) if way == "alone" else judge(*job[:4], data_folder)
        for each in make:
            for key, value in each.items():
                if key not in ("kind", "way"):
                    sums[f"{each.get('way', way)}|{each['kind']}"][key] += value
        write_text(place, json.dumps({"table": name, "epsilon": epsilon, "sums": sums}) + "\n")


def jobs_of(folder: Path, part: float, data_folder: str) -> list[Job]:
    """Releases of all tables in turn, a part of them: seeds before tables, so that what is there is balanced."""
    tables = dict.fromkeys(("raw values", "found", "alone"), truths.REAL)
    tables |= dict.fromkeys(("people", "people, two rows each"), ("clinic",)) | {"three columns": ("modulo",)}
    found = [
        (name, way, epsilon, seed, str(folder), data_folder)
        for way, number in RELEASES.items()
        for name in tables[way]
        for epsilon in (EPSILONS if way != "alone" else (1.0,))
        for seed in range(max(round(part * number), 1))
    ]
    return sorted(found, key=lambda job: job[3] / RELEASES[job[1]])


def line(key: tuple[str, str, float], own: Mapping[str, float], tables: Sequence[Mapping[str, float]]) -> list[str]:
    """A row of the page, its verdict last."""
    way, kind, epsilon = key
    n, told, plainly = (own.get(each, 0.0) for each in ("n", "cautioned", "held_plainly"))
    plain, held = n - told, own.get("held", 0.0)
    verdict = "PASS" if plainly >= LEAST * plain else "FAIL"
    verdict += "" if n >= ENOUGH else f", of {n:,.0f} alone"
    verdict = verdict if plain else "all CAUTION" if n else "nothing to judge"
    least = [each["held_plainly"] / of for each in tables if (of := each.get("n", 0) - each.get("cautioned", 0))]
    cells = [f"{held / n:.1%}" if n else "-", f"{plainly / plain:.1%} of {plain:,.0f}" if plain else "-"]
    cells += [f"{min(least):.0%}" if least else "-"]
    cells += [f"{own.get(each, 0.0) / n:.0%}" if n else "-" for each in ("cautioned", "bounds")]
    counts = [f"{own.get(each, 0.0):,.0f}" for each in ("none", "refused")]
    return [way, kind, f"{epsilon:g}", f"{n:,.0f}", *cells, *counts, verdict]


def page(folder: Path, out: Path) -> list[str]:
    """The page of what was kept; returns its verdicts."""
    sums: Sums = defaultdict(lambda: defaultdict(float))
    tables: dict[str, Sums] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    places = sorted(folder.glob("*.json"))
    for place in places:
        held = json.loads(place.read_text())
        for name, own in held["sums"].items():
            way, kind = name.split("|")
            for each, value in own.items():
                sums[way, kind, held["epsilon"]][each] += value
                tables[held["table"]][way, kind, held["epsilon"]][each] += value
    keys = sorted((key for key in sums if key[0] in WAYS), key=lambda key: (WAYS.index(key[0]), key[1], key[2]))
    lines = [line(key, sums[key], [each[key] for each in tables.values() if key in each]) for key in keys]
    passed, failed = (sum(each[-1].startswith(said) for each in lines) for said in ("PASS", "FAIL"))
    series: dict[str, dict[str, float]] = {f"epsilon {epsilon:g}": {} for epsilon in EPSILONS}
    for kind in dict.fromkeys(kind for _, kind, _ in keys):
        for epsilon in EPSILONS:
            own_ = [sums[key] for key in keys if key[1:] == (kind, epsilon) and sums[key].get("n")]
            if own_:
                shown = sum(each["held"] for each in own_) / sum(each["n"] for each in own_)
                series[f"epsilon {epsilon:g}"][kind] = shown
    naive = []
    for kind in dict.fromkeys(kind for way, kind, _ in sums if way == "as if real"):
        each_ = [sums.get(("as if real", kind, epsilon), {}) for epsilon in EPSILONS]
        naive.append([kind, *(f"{each['held'] / each['n']:.0%}" if each.get("n") else "-" for each in each_)])
    alone = [
        [f"`{kind}`", *(f"{own[each] / own['n']:.1f}" for each in ("wider", "louder"))]
        for (way, kind, _), own in sums.items()
        if way == "alone" and own.get("n")
    ]
    sentences = (
        "How often 95% intervals of `sklar infer` hold the truth of raw values, of people, of what a search found, of "
        "three columns, and of functions that users write. A row fails where less than 93% hold of the intervals that "
        f"the program did not caution about. In the picture each dot is a kind of question, over all of them.\n\n"
        f"**{passed} rows pass and {failed} fail**; of {len(lines) - passed - failed} others no interval came without "
        "CAUTION."
    )
    parts = [
        record.table(HEAD, lines),
        "How often 95% intervals of the same estimators hold the same truth where synthetic rows are taken for real:\n",
        record.table(["synthetic rows as if real", *series], naive),
        "What sharing the budget costs: standard errors at epsilon 1 in a release of all seven columns, over those "
        "where all of the budget goes to the question's columns:\n",
        record.table(["question", "all that an interval covers", "noise"], alone),
    ]
    methods = f"{len(places):,} releases of six real tables ({', '.join(truths.REAL)}) of up to {truths.ROWS:,} rows, "
    methods += "of people with one to eight visits, and of three columns of which each is the sum of the others modulo "
    methods += f"three. {METHODS.strip()}"
    text = record.told("Inference: does it hold?", sentences, "\n".join(parts), methods)
    document = {"header": record.header("inference"), "results": [dict(zip(HEAD, each, strict=True)) for each in lines]}
    pictures = {"inference": dots("Coverage of 95% intervals", "share that hold the truth", series, line=0.95)}
    record.write(out, "inference", document=document, markdown=text, figures=pictures)
    return [f"{each[-1]}: {', '.join(each[:3])}: {each[5]}" for each in lines if each[-1].startswith("FAIL")]


@click.command()
@record.options
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes.")
@click.option("--part", type=float, default=1.0, show_default=True, help="Make this part of the releases.")
@click.option("--way", "ways", type=click.Choice([*RELEASES]), multiple=True, help="Only these ways.")
@click.option("--table", "tables", multiple=True, help="Only these tables.")
@click.option("--minutes", type=float, default=math.inf, help="Begin no release after so many minutes.")
@click.option(
    "--saved",
    type=click.Path(path_type=Path, file_okay=False),
    default=SAVED,
    show_default="build/inference, by tree",
    help="Folder in which releases are kept as they come; a second run goes on from there.",
)
@click.option("--page", "only_page", is_flag=True, help="Write the page from what was saved, and run nothing.")
def main(
    data_folder: Path | None,
    out: Path,
    *,
    jobs: int,
    part: float,
    ways: tuple[str, ...],
    tables: tuple[str, ...],
    minutes: float,
    saved: Path,
    only_page: bool,
) -> None:
    """Coverage and Type I errors of inference over releases."""
    end = time.monotonic() + 60 * minutes
    if not only_page:
        saved.mkdir(parents=True, exist_ok=True)
        for name in truths.REAL[1:]:
            truths.taken(name)
        todo = jobs_of(saved, part, str(data_folder or ""))
        todo = [job for job in todo if (not ways or job[1] in ways) and (not tables or job[0] in tables)]
        # A fork of a process in which polars has run may wait forever.
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            made = (map if jobs == 1 else pool.map)(partial(run_one, end=end), todo)
            for number, _ in enumerate(made, start=1):
                if number % 100 == 0:
                    click.echo(f"{number:,} of {len(todo):,} releases", err=True)
    for verdict in page(saved, out):
        click.echo(verdict)


if __name__ == "__main__":
    main()
