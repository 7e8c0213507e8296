"""Whether inference from a released model holds: coverage of intervals of raw values, and Type I errors.

    python -m experiments.inference --jobs 16
    python -m experiments.inference --page

Every release is a whole one, by `sklar.fit`, of rows that are drawn anew (`truths`). The truth is that of the table's raw
values, not of their codes: limited to the public edges, or to what an answer says that it is limited to; or, of real
tables, that of the population that rows are drawn from. Where people are counted, each person's rows weigh alike up to
the limit. A row of the result fails where less than 93% hold of those intervals that the program did not caution about.

Every release is a file of sums; one whose file exists is not made again, so that a run can be stopped at any time.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np

import sklar
from experiments import record, truths
from experiments.asked import Rows
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inference, Inquiry, Unknown
from sklar.answer.infer.onestep import Linearized, OneStep
from sklar.answer.predicate import QueryError
from sklar.draw.repair import sample_codes
from sklar.errors import BudgetError
from sklar.files.model import Model
from sklar.files.write import write_text

SAVED = record.RESULTS.parents[1] / "build" / "inference"
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
Job = tuple[str, str, float, int, str, str]


class AsIfReal(Inquiry):
    """The same question asked of rows as if they were a sample without noise: the classical answer."""

    def __init__(self, inquiry: Inquiry, rows: Rows) -> None:
        vars(self).update(vars(inquiry))
        self.target, self.population = "population", True
        self.notes, self.cautions = [], []
        self.rows, self.reference = len(rows.codes), rows.reference(self.where)

    def one_step(self, linear: Linearized) -> OneStep:
        """What the rows say, with the errors of independent rows."""
        weights, psi = self.reference.union, linear.influence(self.reference.codes)
        psi = psi - weights @ psi
        none, whole = np.zeros((psi.shape[1], psi.shape[1])), (psi * weights[:, None]).T @ psi
        parts = {"noise": none, "model": none, "beyond": none, "sampling": whole / self.rows, "influence": whole}
        return OneStep(values=linear.values, offset=linear.values, coefficients={}, **parts)

    def unknown(self, evaluate: Any, influence: Any, *, swung: bool = True) -> Unknown:  # noqa: ARG002
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


def run_one(job: Job) -> str:
    """One release; its sums by way and kind are kept in a file of their own."""
    name, way, epsilon, seed, folder, data_folder = job
    place = Path(folder) / f"{name}-{way.replace(' ', '_').replace(',', '')}-{epsilon:g}-{seed:04d}.json"
    if not place.is_file():
        # Of functions that divide by nothing in models that are tilted far.
        warnings.simplefilter("ignore", RuntimeWarning)
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        made = (
            widths(name, epsilon, seed, data_folder) if way == "alone" else judge(name, way, epsilon, seed, data_folder)
        )
        for each in made:
            for key, value in each.items():
                if key not in ("kind", "way"):
                    sums[f"{each.get('way', way)}|{each['kind']}"][key] += value
        write_text(place, json.dumps({"table": name, "epsilon": epsilon, "sums": sums}) + "\n")
    return place.name


def jobs_of(folder: Path, part: float, data_folder: str) -> list[Job]:
    """Releases of all tables in turn, a part of them."""
    tables = {way: truths.REAL for way in ("raw values", "found", "alone")}
    tables |= dict.fromkeys(("people", "people, two rows each"), ("clinic",)) | {"three columns": ("modulo",)}
    found = [
        (name, way, epsilon, seed, str(folder), data_folder)
        for way, number in RELEASES.items()
        for name in tables[way]
        for epsilon in (EPSILONS if way != "alone" else (1.0,))
        for seed in range(max(round(part * number), 1))
    ]
    # The slowest first, and seeds before tables, so that what is there is balanced.
    return sorted(found, key=lambda job: job[3])


def line(way: str, kind: str, epsilon: float, own: Mapping[str, float]) -> tuple[list[str], str]:
    """A row of the page, and its verdict."""
    n, told, plainly = (own.get(key, 0.0) for key in ("n", "cautioned", "held_plainly"))
    plain, held = n - told, own.get("held", 0.0)
    verdict = "PASS" if not plain or plainly >= LEAST * plain else "FAIL"
    verdict += "" if n >= ENOUGH else f", of {n:,.0f} alone"
    cells = [f"{held / n:.1%}" if n else "-", f"{plainly / plain:.1%} of {plain:,.0f}" if plain else "-"]
    cells += [f"{own.get(key, 0.0) / n:.0%}" if n else "-" for key in ("cautioned", "bounds")]
    counts = [f"{own.get(key, 0.0):,.0f}" for key in ("none", "refused")]
    return [way, kind, f"{epsilon:g}", f"{n:,.0f}", *cells, *counts, verdict], verdict


HEAD = (
    "what",
    "kind",
    "epsilon",
    "intervals",
    "hold",
    "of those without CAUTION",
    "cautioned",
    "bounds",
    "none",
    "refused",
    "",
)


def page(folder: Path, out: Path) -> list[str]:
    """The page of what was kept; returns its verdicts."""
    sums: dict[tuple[str, str, float], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    releases = 0
    for place in sorted(folder.glob("*.json")):
        held, releases = json.loads(place.read_text()), releases + 1
        for key, own in held["sums"].items():
            for name, value in own.items():
                sums[(*key.split("|"), held["epsilon"])][name] += value  # type: ignore[index]
    order = {way: place for place, way in enumerate(WAYS)}
    judged_ = sorted((key for key in sums if key[0] in order), key=lambda key: (order[key[0]], key[1], key[2]))
    made = [line(*key, sums[key]) for key in judged_]
    verdicts = [f"{verdict}: {', '.join(cells[:3])}: {cells[5]}" for cells, verdict in made]
    failed = sum(verdict.startswith("FAIL") for verdict in verdicts)
    naive = []
    for kind in dict.fromkeys(kind for way, kind, _ in sums if way == "as if real"):
        own = [sums["as if real", kind, epsilon] for epsilon in EPSILONS]
        naive.append([kind, *(f"{each['held'] / each['n']:.0%}" if each.get("n") else "-" for each in own)])
    alone = [
        [f"`{kind}`", f"{own['wider'] / own['n']:.1f}", f"{own['louder'] / own['n']:.1f}"]
        for (way, kind, _), own in sums.items()
        if way == "alone" and own.get("n")
    ]
    text = f"""# Inference: does it hold?

{(__doc__ or "").split("    python -m", 1)[0].strip()}

{(__doc__ or "").rsplit("--page", 1)[1].strip()}

{releases:,} releases; six real tables ({", ".join(truths.REAL)}) of up to {truths.ROWS:,} rows, people with one to eight
visits, and three columns of which each is the sum of the others modulo three. *None*: figures without an interval;
*bounds*: what holds whatever was not measured. *Tests of no effect*: p-values of at least 5% where nothing depends.

**{len(made) - failed} of {len(made)} rows pass.**

{record.table(HEAD, [cells for cells, _ in made])}

## Synthetic rows as if they were real

How often 95% intervals of the same estimators hold the same truth where synthetic rows are taken for real ones:

{record.table(["", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)], naive)}

## What sharing the budget costs

Standard errors at epsilon 1 in a release of all seven columns, over those of a release of the question's columns alone:
of everything that an interval covers, and of noise.

{record.table(["question", "standard error", "noise"], alone)}
"""
    results = [dict(zip(HEAD, cells, strict=True)) for cells, _ in made]
    record.write(out, "inference", document={"header": record.header("inference"), "results": results}, markdown=text)
    return verdicts


@click.command()
@record.options
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes.")
@click.option("--part", type=float, default=1.0, show_default=True, help="Make this part of the releases.")
@click.option("--way", "ways", type=click.Choice([*RELEASES]), multiple=True, help="Only these ways.")
@click.option("--table", "tables", multiple=True, help="Only these tables.")
@click.option(
    "--saved",
    type=click.Path(path_type=Path, file_okay=False),
    default=SAVED,
    show_default="build/inference",
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
    saved: Path,
    only_page: bool,
) -> None:
    """Coverage and Type I errors of inference over releases."""
    if not only_page:
        (saved / "releases").mkdir(parents=True, exist_ok=True)
        for name in truths.REAL[1:]:
            truths.taken(name)
        todo = jobs_of(saved / "releases", part, str(data_folder or ""))
        todo = [job for job in todo if (not ways or job[1] in ways) and (not tables or job[0] in tables)]
        with ProcessPoolExecutor(jobs) as pool:
            for number, _ in enumerate(pool.map(run_one, todo), start=1):
                if number % 100 == 0:
                    click.echo(f"{number:,} of {len(todo):,} releases", err=True)
    for verdict in page(saved / "releases", out):
        click.echo(verdict)


if __name__ == "__main__":
    main()
