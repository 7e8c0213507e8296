"""Whether intervals hold for statistics that users write: thirteen functions, six tables, four budgets.

    python -m experiments.functions --runs 20 --jobs 16
    python -m experiments.functions --page

Every run draws a new table, releases it, and asks `model.infer` for each function, about the table and about the
population. The truth is the same function of the coded rows, numbers at the midpoints of their bins, and infer is told
to take midpoints, too: of the table that was released, and of the population that it was drawn from. So it says whether
noise and sampling are covered, and not whether bins hide anything. Every run is one JSON file; a run whose file exists
is not made again.

Tables are rows of a population of their own: the generated census, and columns of a Gaussian copula whose margins and
dependences differ (heavy tails, few levels, rare categories, near determinism, independence).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from benchmarks.pages import kept

from experiments import record
from experiments.asked import counts_of, measure_counts
from experiments.figures import dots
from sklar.answer.infer.inquiry import Inquiry
from sklar.answer.infer.inside import Declared
from sklar.answer.infer.numerical import table_of
from sklar.answer.infer.words import Statistic
from sklar.answer.predicate import QueryError
from sklar.files.model import Model, fit_tables
from sklar.files.write import write_text
from sklar.kernel.theorems import Budget
from sklar.public.schema import Schema

EPSILONS = (0.5, 1.0, 4.0, 10.0)
POPULATION, ROWS = 400_000, 20_000
SCORES: dict[str, Declared] = {"x": "midpoint", "y": "midpoint"}
SAVED = kept("functions")
Floats = np.ndarray[Any, np.dtype[np.float64]]
# Columns of every table: two numbers, a third with few values, two groups, a yes or no.
SCHEMA = """
[table]
name = "{name}"
[attributes]
x = {{ type = "real", edges = {x} }}
y = {{ type = "real", edges = {y} }}
k = {{ type = "integer", edges = [0, 1, 2, 3, 4, 5, 6, 7] }}
g = {{ type = "categorical", values = ["a", "b", "c", "d"] }}
h = {{ type = "categorical", values = ["u", "v"] }}
b = {{ type = "boolean" }}
"""


def number(table: pl.DataFrame, name: str) -> Floats:
    """A column as floats."""
    return table[name].to_numpy().astype(np.float64)


def quantile(x: Floats, weights: Floats, part: float) -> float:
    """Interpolated between the middles of the steps of the distribution function."""
    values, places = np.unique(x, return_inverse=True)
    mass = np.bincount(places, weights)
    return float(np.interp(part, (np.cumsum(mass) - mass / 2) / mass.sum(), values))


def ranks(x: Floats, weights: Floats) -> Floats:
    """Middles of the distribution function."""
    _, places = np.unique(x, return_inverse=True)
    mass = np.bincount(places, weights)
    return np.asarray((np.cumsum(mass) - mass / 2)[places] / mass.sum())


def correlation(a: Floats, b: Floats, weights: Floats) -> float:
    """Pearson's."""
    covariance = np.cov(a, b, aweights=weights)
    return float(covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1]))


def regression(x: Floats, y: Floats, weights: Floats, *, mean: Callable[[Floats], Floats], poisson: bool) -> Floats:
    """Slopes of a generalized linear model by Newton's method: what statsmodels' GLM finds with frequency weights."""
    x = np.column_stack([np.ones(len(x)), x])
    beta = np.zeros(x.shape[1])
    if poisson:
        beta[0] = math.log(np.average(y, weights=weights))
    for _ in range(50):
        mu = mean(np.clip(x @ beta, -30, 30))
        slope = mu if poisson else mu * (1 - mu)
        step = np.linalg.solve((x * (weights * slope)[:, None]).T @ x, x.T @ (weights * (y - mu)))
        beta = beta + np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-10:
            break
    return np.asarray(beta[1:])


def standardized(x: Floats) -> Floats:
    """By constants, which depend on no rows."""
    return (x - 50) / 15


def gini(table: pl.DataFrame, weights: Floats) -> float:
    """Of y, shifted to be positive."""
    y = number(table, "y")
    values, places = np.unique(y, return_inverse=True)
    mass = np.bincount(places, weights) / weights.sum()
    return float(mass @ np.abs(values[:, None] - values) @ mass / 2 / (mass @ values))


def odds(table: pl.DataFrame, weights: Floats) -> float:
    """The logarithm of the ratio of odds of b between u and v."""
    yes, one = number(table, "b") == 1, (table["h"] == "u").to_numpy()
    cells = [float(weights[own].sum()) for own in (yes & one, ~yes & ~one, yes & ~one, ~yes & one)]
    return math.log(cells[0] * cells[1] / (cells[2] * cells[3]))


def spread(x: Floats, weights: Floats) -> float:
    """The standard deviation."""
    return math.sqrt(np.average((x - np.average(x, weights=weights)) ** 2, weights=weights))


def poisson(table: pl.DataFrame, weights: Floats) -> Floats:
    """A count on a number and a group."""
    x = np.column_stack([standardized(number(table, "x")), table["h"] == "u"])
    return regression(x, number(table, "k"), weights, mean=np.exp, poisson=True)


def quadratic(table: pl.DataFrame, weights: Floats) -> Floats:
    """Log odds of b on x and its square."""
    x = standardized(number(table, "x"))
    mean = lambda at: 1 / (1 + np.exp(-at))  # noqa: E731
    return regression(np.column_stack([x, x**2]), number(table, "b"), weights, mean=mean, poisson=False)


FUNCTIONS: dict[str, tuple[Callable[[pl.DataFrame, Floats], Any], list[str]]] = {
    "Poisson regression": (poisson, ["x", "k", "h"]),
    "quadratic logit": (quadratic, ["x", "b"]),
    "median": (lambda t, w: quantile(number(t, "x"), w, 0.5), ["x"]),
    "median of a group": (lambda t, w: quantile(number(t, "y"), w * (t["h"] == "u").to_numpy(), 0.5), ["y", "h"]),
    "90% quantile": (lambda t, w: quantile(number(t, "y"), w, 0.9), ["y"]),
    "Gini": (gini, ["y"]),
    "Spearman": (lambda t, w: correlation(ranks(number(t, "x"), w), ranks(number(t, "y"), w), w), ["x", "y"]),
    "ratio of sds": (lambda t, w: spread(number(t, "x"), w) / spread(number(t, "y"), w), ["x", "y"]),
    "ratio of means": (
        lambda t, w: np.average(number(t, "k"), weights=w) / np.average(number(t, "y"), weights=w), ["k", "y"],
    ),
    "log odds ratio": (odds, ["b", "h"]),
    "mean of a group": (lambda t, w: np.average(number(t, "y"), weights=w * (t["g"] == "b").to_numpy()), ["y", "g"]),
    "mean of two groups": (
        lambda t, w: np.average(number(t, "x"), weights=w * ((t["h"] == "u") & (t["g"] == "a")).to_numpy()),
        ["x", "g", "h"],
    ),
    "correlation of logs": (
        lambda t, w: correlation(np.log(number(t, "y")), number(t, "k"), w), ["y", "k"],
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A population: how its hidden normals hang together, the tail of y, and how rare groups are."""

    loading: float
    tail: float
    groups: tuple[float, ...]
    yes: float = 0.4
    skew: float = 1.0


TABLES = {
    "mild": Made(loading=0.5, tail=0.5, groups=(0.4, 0.3, 0.2, 0.1)),
    "heavy tail": Made(loading=0.4, tail=1.2, groups=(0.4, 0.3, 0.2, 0.1)),
    "rare groups": Made(loading=0.5, tail=0.5, groups=(0.9, 0.05, 0.03, 0.02), yes=0.05),
    "close": Made(loading=0.9, tail=0.7, groups=(0.25, 0.25, 0.25, 0.25)),
    "independent": Made(loading=0.0, tail=0.5, groups=(0.4, 0.3, 0.2, 0.1)),
    "skewed": Made(loading=0.6, tail=0.8, groups=(0.7, 0.1, 0.1, 0.1), yes=0.2, skew=3.0),
}


@lru_cache(maxsize=1)
def population(name: str) -> tuple[Schema, np.ndarray[Any, np.dtype[np.int64]]]:
    """The schema of a table and the codes of its population, shape (rows, 6)."""
    made, generator = TABLES[name], np.random.default_rng(list(TABLES).index(name))
    common = generator.normal(size=(POPULATION, 1))
    hidden = made.loading * common + math.sqrt(1 - made.loading**2) * generator.normal(size=(POPULATION, 6))
    # An interaction that no normal copula has.
    hidden[:, 2] += 0.3 * (hidden[:, 0] > 0) * (hidden[:, 4] > 0)
    x, y = 50 + 15 * hidden[:, 0] * np.where(hidden[:, 0] > 0, made.skew, 1.0), np.exp(3 + made.tail * hidden[:, 1])
    # Public edges: round numbers that do not look at the rows.
    edges = {
        "x": [-50, 10, 20, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90, 110, 300],
        "y": [0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 60, 100, 200, 1000, 20_000],
    }
    codes = [np.searchsorted(edges[each], np.clip(values, edges[each][0], edges[each][-1] - 1), side="right") - 1
             for each, values in (("x", x), ("y", y))]  # fmt: skip
    k = np.minimum(generator.poisson(np.exp(0.3 + 0.4 * hidden[:, 2])), 6)
    g = np.searchsorted(np.cumsum(made.groups)[:-1], _uniform(hidden[:, 3]))
    h, b = (hidden[:, 4] > 0).astype(int), (_uniform(hidden[:, 5]) < made.yes).astype(int)
    schema = Schema.from_toml(SCHEMA.format(name=name.replace(" ", "_"), **edges))
    return schema, np.stack([*codes, k, g, h, b], axis=1).astype(np.int64)


def _uniform(normal: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(normal / normal.std()))


def run(name: str, epsilon: float, number_: int) -> list[dict[str, Any]]:
    """One release of a new table, and all functions asked of it."""
    schema, whole = population(name)
    generator = np.random.default_rng([number_, list(TABLES).index(name)])
    rows = whole[generator.integers(len(whole), size=ROWS)]
    model = fit_tables(measure_counts(counts_of(rows, schema), schema, Budget(epsilon=epsilon)))
    found: list[dict[str, Any]] = []
    for target, truth in (("table", rows), ("population", whole)):
        for function, (call, columns) in FUNCTIONS.items():
            try:
                answer = model.infer(call, columns=columns, target=target, scores=SCORES)
            except QueryError as error:
                found.append({"function": function, "target": target, "refused": str(error)})
                continue
            real = np.atleast_1d(np.asarray(call(*_coded(model, truth, columns)), dtype=np.float64))
            for figure, at in zip(answer.figures, real.tolist(), strict=True):
                found.append(
                    {
                        "function": function,
                        "target": target,
                        "truth": at,
                        "estimate": figure.estimate,
                        "error": figure.standard_error,
                        "low": figure.low,
                        "high": figure.high,
                        "measured": figure.measured,
                        "caution": bool(answer.cautions),
                    }
                )
    return found


def _coded(model: Model, rows: Any, columns: list[str]) -> tuple[pl.DataFrame, Floats]:
    """The distinct rows of these columns with their numbers, as the function of a model sees them."""
    schema = model.schema
    asked = Statistic(text="", kind="function", names=tuple(schema.names.index(name) for name in columns))
    inquiry = Inquiry(model, asked, scores=SCORES)
    distinct, counts = np.unique(rows[:, list(inquiry.where)], axis=0, return_counts=True)
    return table_of(inquiry, distinct), counts.astype(np.float64)


def make(task: tuple[str, float, int, Path]) -> None:
    """One run, into its file."""
    name, epsilon, number_, saved = task
    path = saved / f"{name.replace(' ', '-')}-{epsilon:g}-{number_:04d}.json"
    if not path.exists():
        write_text(path, json.dumps(run(name, epsilon, number_)) + "\n")


def collected(saved: Path) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """What all files hold, by table and budget."""
    for path in sorted(saved.glob("*.json")):
        name, epsilon, _ = path.stem.rsplit("-", 2)
        yield name, epsilon, json.loads(path.read_text())


def markdown(saved: Path) -> tuple[str, dict[str, Any]]:
    """The page: coverage by function and budget, with cautions apart, by table, and the figures behind it."""
    sums: dict[tuple[str, ...], list[float]] = {}
    runs = 0
    for name, epsilon, found in collected(saved):
        runs += 1
        for each in found:
            kind = (
                "refused"
                if "refused" in each
                else "none"
                if each["low"] is None
                else "caution"
                if each["caution"]
                else "plain"
            )
            held = kind in ("plain", "caution") and each["low"] <= each["truth"] <= each["high"]
            for key in ((each["function"], epsilon, each["target"]), (f"table: {name}", epsilon, each["target"])):
                own = sums.setdefault((*key, kind), [0.0, 0.0])
                own[0] += 1
                own[1] += held
    epsilons = sorted({key[1] for key in sums}, key=float)
    head = ["", *(f"epsilon {e}, {t}" for e in epsilons for t in ("table", "population"))]

    def cell(what: str, epsilon: str, target: str) -> str:
        parts = []
        for kind in ("plain", "caution"):
            number_, held = sums.get((what, epsilon, target, kind), (0.0, 0.0))
            parts.append(f"{held / number_:.1%} of {number_:,.0f}" if number_ else "")
        none = sum(sums.get((what, epsilon, target, kind), (0.0,))[0] for kind in ("none", "refused"))
        text = parts[0] + (f" (cautioned: {parts[1]})" if parts[1] else "")
        return text + (f"; none: {none:,.0f}" if none else "")

    def rows_of(names: list[str]) -> list[list[object]]:
        return [[what, *(cell(what, e, t) for e in epsilons for t in ("table", "population"))] for what in names]

    tables = sorted({key[0] for key in sums if key[0].startswith("table: ")})
    sentences = (
        "How often 95% intervals of statistics that users write in Python hold the truth: that of the table, and that "
        "of the population that it is drawn from. In parentheses are those beside which the answer says CAUTION. Each "
        "dot of the picture is a function, where nothing is said."
    )
    methods = (
        f"{runs:,} releases of tables of {ROWS:,} rows. Coverage of 95% intervals, and of how many; none: without an "
        "interval, or refused. The truth is the same function of the coded rows of the table, and of the "
        f"{POPULATION:,} rows that each table is drawn from."
    )
    shown = f"{record.table(head, rows_of(list(FUNCTIONS)))}\n\nBy table:\n\n{record.table(head, rows_of(tables))}"
    page = record.told("Statistics that users write: do intervals hold?", sentences, shown, methods)
    return page, {"runs": runs, "sums": {"|".join(key): value for key, value in sums.items()}}


def figure(results: Mapping[str, Any]) -> Any:
    """Coverage of intervals without a caution, by function and epsilon."""
    series: dict[str, dict[str, float]] = {}
    for key, (number_, held) in results["sums"].items():
        what, epsilon, target, kind = key.split("|")
        if kind == "plain" and number_ and what in FUNCTIONS:
            series.setdefault(f"epsilon {epsilon}, {target}", {})[what] = held / number_
    return dots("Coverage of 95% intervals", "share that hold the truth", dict(sorted(series.items())), line=0.95)


@click.command()
@record.options
@click.option("--runs", type=int, default=20, show_default=True, help="Releases of each table at each epsilon.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes.")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="Only these budgets.")
@click.option("--table", "tables", type=click.Choice(list(TABLES)), multiple=True, help="Only these tables.")
@click.option("--saved", type=click.Path(path_type=Path, file_okay=False), default=SAVED, help="Where runs are kept.")
@click.option("--page", "only_page", is_flag=True, help="Write the page from what was saved, and run nothing.")
def main(
    data_folder: Path | None,  # noqa: ARG001
    out: Path,
    *,
    runs: int,
    jobs: int,
    epsilons: tuple[float, ...],
    tables: tuple[str, ...],
    saved: Path,
    only_page: bool,
) -> None:
    """Coverage of intervals of functions that users write."""
    if not only_page:
        saved.mkdir(parents=True, exist_ok=True)
        # Runs of one table after another: a process keeps one population.
        tasks = [
            (name, epsilon, k, saved)
            for name in tables or TABLES
            for epsilon in epsilons or EPSILONS
            for k in range(runs)
        ]
        if jobs == 1:
            for task in tasks:
                make(task)
        else:
            with ProcessPoolExecutor(jobs) as pool:
                list(pool.map(make, tasks))
    page, results = markdown(saved)
    document: Mapping[str, Any] = {"header": record.header("functions"), "results": results}
    pictures = {"functions": figure(results)}
    record.write(out, "functions", document=dict(document), markdown=page, figures=pictures)


if __name__ == "__main__":
    main()
