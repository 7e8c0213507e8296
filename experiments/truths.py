"""Whether intervals hold what people mean: raw values, people, domains that were found, structure in three columns.

    python -m experiments.inference --raw --jobs 16

Every release is a whole one, by `sklar.fit`, of a table that is drawn anew (Adult: of its rows, drawn with return). The
truth is that of the table's raw values, not of their codes: limited to the public edges, or to what an answer says that
it is limited to. Where people are counted, each person's rows weigh alike up to the limit. A row of the result fails,
and is listed, where less than 93% hold of those intervals that the program did not caution about, by more than chance:
one in a hundred rows of 95% intervals.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sklar
from experiments import data, record
from experiments.figures import dots
from experiments.limited import columns as shapes
from sklar.answer.predicate import QueryError
from sklar.errors import BudgetError
from sklar.files.write import write_text
from sklar.public.schema import Schema

EPSILONS = (0.5, 1.0, 4.0, 10.0)
# Below this share of intervals that hold, an answer must say CAUTION.
LEAST = 0.93
ROWS = 8_000
Limits = dict[str, tuple[float, float]]
# What is true of a frame whose numbers are limited, figure by figure.
Truth = Callable[[pl.DataFrame], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of a kind, and its truth."""

    kind: str
    question: str
    truth: Truth


def mean(x: str, *by: str) -> Asked:
    """The mean of a number, of all or by groups in the order of their levels."""
    text = f"mean({x})" + (f" by {', '.join(by)}" if by else "")
    return Asked(kind="group means" if by else "means", question=text, truth=lambda frame: _means(frame, x, by))


def _means(frame: pl.DataFrame, x: str, by: Sequence[str]) -> list[float]:
    if not by:
        return [float(frame[x].mean())]  # type: ignore[arg-type]
    groups = product(*(sorted(LEVELS[name]) for name in by))
    kept = [pl.all_horizontal(pl.col(name) == level for name, level in zip(by, each, strict=True)) for each in groups]
    return [float(frame.filter(each)[x].mean() or np.nan) for each in kept]  # type: ignore[arg-type]


def share(text: str, kind: str, where: pl.Expr) -> Asked:
    """A share of rows."""
    return Asked(kind=kind, question=f"share({text})", truth=lambda frame: [frame.select(where.mean()).item()])


def correlation(x: str, y: str) -> Asked:
    """Pearson's."""
    return Asked(
        kind="correlations",
        question=f"corr({x}, {y})",
        truth=lambda frame: [float(np.corrcoef(frame[x].to_numpy(), frame[y].to_numpy())[0, 1])],
    )


def regression(y: str, *xs: str) -> Asked:
    """Linear, on numbers and flags; the intercept is not judged."""

    def solved(frame: pl.DataFrame) -> list[float]:
        x = np.column_stack([np.ones(len(frame)), *(frame[name].to_numpy().astype(float) for name in xs)])
        found = np.linalg.lstsq(x, frame[y].to_numpy().astype(float), rcond=None)[0]
        return [float("nan"), *found[1:].tolist()]

    return Asked(kind="linear regressions", question=f"{y} ~ {' + '.join(xs)}", truth=solved)


def measure(kind: str, question: str, truth: Callable[[pl.DataFrame], Any]) -> Asked:
    """Any other measure, or several."""
    return Asked(kind=kind, question=question, truth=lambda frame: np.atleast_1d(truth(frame)).tolist())


def _ratio(frame: pl.DataFrame) -> float:
    return _means(frame, "x", ())[0] / _means(frame, "y", ())[0]


def _odds(frame: pl.DataFrame) -> float:
    yes, no = (frame.filter(pl.col("flag") == flag)["group"].to_numpy() == "b" for flag in (True, False))
    return float(yes.sum() / (~yes).sum() * (~no).sum() / no.sum())


def _rates(frame: pl.DataFrame) -> list[float]:
    """Of a Poisson regression on a flag: the log of the ratio of means."""
    means = [float(frame.filter(pl.col("flag") == flag)["y"].mean()) for flag in (True, False)]  # type: ignore[arg-type]
    return [math.nan, math.log(means[0] / means[1])]


LEVELS: dict[str, list[Any]] = {"flag": [False, True], "group": ["a", "b", "c"], **{n: ["0", "1", "2"] for n in "pqr"}}


def _flags(generator: np.random.Generator, n: int) -> dict[str, Any]:
    return {"flag": generator.random(n) < 0.4, "group": generator.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])}


def sales(generator: np.random.Generator) -> pl.DataFrame:
    """Prices with a long tail that depend on a group, and amounts that fall with them."""
    own = _flags(generator, ROWS)
    price = generator.lognormal(3 + 0.5 * own["flag"] + 0.3 * (own["group"] == "b"), 0.9)
    amount = generator.poisson(40 / (1 + price / 30)) + 1
    return pl.DataFrame({"x": np.minimum(price, 999.9), "y": np.minimum(amount, 79), **own})


def clinic(generator: np.random.Generator) -> pl.DataFrame:
    """People with one to eight visits; those with more are older and pay more."""
    people = 3 * ROWS // 4
    times = generator.integers(1, 9, people)
    who = np.repeat(np.arange(people), times)
    own = {name: values[who] for name, values in _flags(generator, people).items()}
    old = np.clip(30 + 5 * times + generator.normal(0, 12, people), 0, 99)[who]
    paid = np.clip(generator.lognormal(4, 0.6, who.size) * (1 + times[who] / 8), 0, 999)
    return pl.DataFrame({"id": who, "x": paid, "y": old.astype(int), **own})


def modulo(generator: np.random.Generator) -> pl.DataFrame:
    """A column that is the sum of two others modulo three, which no pair shows, and a number apart."""
    p, q = generator.integers(0, 3, (2, ROWS))
    texts = {name: values.astype(str) for name, values in (("p", p), ("q", q), ("r", (p + q) % 3))}
    return pl.DataFrame({"x": generator.gamma(2, 50, ROWS).clip(0, 999), **texts})


def skewed(generator: np.random.Generator) -> pl.DataFrame:
    """Mostly zeros beside heaps and a heavy tail."""
    own = shapes(generator, ROWS)
    return pl.DataFrame(
        {"x": own["zeros"].clip(0, 99_999), "y": own["heaps"].clip(0, 9_999), **_flags(generator, ROWS)}
    )


def earners(generator: np.random.Generator) -> pl.DataFrame:
    """Income by age and sex, as in a census."""
    own, age = _flags(generator, ROWS), generator.integers(18, 90, ROWS)
    income = generator.lognormal(9.6 + 0.015 * np.minimum(age, 55) + 0.2 * own["flag"], 0.5).clip(0, 499_999)
    return pl.DataFrame({"x": income, "y": age, **own})


@cache
def _adult(folder: str) -> pl.DataFrame:
    frame = pl.read_csv(Path(folder) / "adult.csv" if folder else data.DEFAULT_FOLDER / "adult.csv")
    races = pl.when(pl.col("race") == "White").then(pl.lit("a")).when(pl.col("race") == "Black").then(pl.lit("b"))
    return frame.select(
        x=pl.col("hours-per-week").cast(float),
        y=pl.col("age"),
        flag=pl.col("sex") == "Male",
        group=races.otherwise(pl.lit("c")),
    )


def adult(generator: np.random.Generator, folder: str = "") -> pl.DataFrame:
    """Hours and age of as many rows of Adult, drawn with return."""
    frame = _adult(folder)
    return frame[generator.integers(len(frame), size=ROWS)]


_PLAIN = (
    mean("x"),
    mean("y"),
    mean("x", "group"),
    mean("y", "flag", "group"),
    share("flag = true and group = 'b'", "shares", pl.col("flag") & (pl.col("group") == "b")),
    correlation("x", "y"),
    regression("y", "x", "flag"),
    measure("quantiles", "median(x)", lambda frame: frame["x"].median()),
    measure(
        "quantiles",
        "quantile(y, 0.9) by flag",
        lambda frame: [frame.filter(pl.col("flag") == flag)["y"].quantile(0.9) for flag in (False, True)],
    ),
    measure("standard deviations", "sd(x)", lambda frame: frame["x"].std()),
    measure("standard deviations", "sd(y)", lambda frame: frame["y"].std()),
    measure("sums", "sum(y)", lambda frame: frame["y"].sum()),
    measure("ratios of means", "mean(x) / mean(y)", _ratio),
    measure("odds ratios", "ratio of odds(group = 'b') by flag", _odds),
    measure("Poisson regressions", "poisson(y ~ flag)", _rates),
)
_THREE = [(p, q, r) for p, q, r in product("012", repeat=3) if p <= q]
_MODULO = (
    mean("x"),
    *(
        share(
            f"p = '{p}' and q = '{q}' and r = '{r}'",
            "three-way shares",
            (pl.col("p") == p) & (pl.col("q") == q) & (pl.col("r") == r),
        )
        for p, q, r in _THREE
    ),
)
_EDGES = {
    "sales": ([0, 5, 10, 20, 40, 80, 160, 1000], [0, 5, 10, 20, 30, 40, 80]),
    "clinic": ([0, 25, 50, 75, 100, 150, 250, 1000], [0, 20, 30, 40, 50, 60, 70, 100]),
    "modulo": ([0, 50, 100, 200, 1000], None),
    "skewed": ([0, 1, 500, 2000, 5000, 20_000, 100_000], [0, 100, 500, 1000, 2000, 10_000]),
    "earners": ([0, 10_000, 20_000, 30_000, 50_000, 100_000, 500_000], [18, 25, 35, 45, 55, 65, 90]),
    "adult": ([0, 20, 35, 40, 45, 60, 100], [15, 25, 35, 45, 55, 65, 100]),
}
TABLES: dict[str, Callable[[np.random.Generator], pl.DataFrame]] = {
    "sales": sales,
    "clinic": clinic,
    "modulo": modulo,
    "skewed": skewed,
    "earners": earners,
    "adult": adult,
}


def schema_of(name: str, way: str) -> Schema:
    """Public edges, or `found` ones between bounds far beyond; of a clinic, one row or at most two of each person."""
    lines, (x, y) = [], _EDGES[name]
    if way.startswith("people"):
        count = 'count = "people"' if way == "people" else 'count = "rows"\nrows_per_person = 2'
        lines.append(f'[table]\nperson = "id"\n{count}')
    lines.append("[attributes]")
    for column, kind, edges in (("x", "real", x), ("y", "integer", y)):
        if edges is not None:
            found = f'domain = "private", low = 0, high = {10 * edges[-1]}, bins = 12'
            lines.append(f'{column} = {{ type = "{kind}", {found if way == "found" else f"edges = {edges}"} }}')
    flat = [f'{each} = {{ type = "categorical", values = ["0", "1", "2"] }}' for each in "pqr"]
    plain = ['flag = { type = "boolean" }', 'group = { type = "categorical", values = ["a", "b", "c"] }']
    return Schema.from_toml("\n".join([*lines, *(flat if name == "modulo" else plain)]))


def ways_of(name: str) -> tuple[str, ...]:
    """How a table is released."""
    return ("raw values", "found", *(("people", "people, two rows each") if name == "clinic" else ()))


def limited(frame: pl.DataFrame, schema: Schema, limits: dict[str, str]) -> pl.DataFrame:
    """The frame with numbers limited to public edges, or to what an answer names."""
    for attribute in schema.attributes:
        if attribute.binned:
            low, high = float(attribute.edges[0]), float(attribute.edges[-1])
            if attribute.name in limits:
                low, high = (float(each) for each in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", limits[attribute.name]))
            frame = frame.with_columns(pl.col(attribute.name).cast(float).clip(low, high))
    return frame


def weighed(frame: pl.DataFrame, way: str) -> pl.DataFrame:
    """Where people are counted: each person's rows as often as makes all of them weigh min(k, limit) together."""
    if not way.startswith("people"):
        return frame
    # The expectation over choices, by many of them.
    most = 1 if way == "people" else 2
    shuffled = [frame.sample(fraction=1.0, shuffle=True, seed=seed).group_by("id").head(most) for seed in range(12)]
    return pl.concat(shuffled)


def judge(name: str, way: str, epsilon: float, seed: int) -> Iterator[dict[str, Any]]:
    """Every question to one release."""
    frame = TABLES[name](np.random.default_rng([seed, len(name), round(100 * epsilon)]))
    schema = schema_of(name, way)
    try:
        model = sklar.fit(
            frame.drop("id") if "id" in frame.columns and not schema.person else frame, schema, epsilon=epsilon
        )
    except BudgetError:
        yield {"kind": "refused releases", "refused": 1}
        return
    rows = weighed(frame, way)
    for asked in _MODULO if name == "modulo" else _PLAIN:
        if asked.kind == "sums" and way.startswith("people"):
            # Of rows that were chosen: their number is chance.
            continue
        try:
            found = model.infer(asked.question, target="table")
        except QueryError:
            yield {"kind": asked.kind, "refused": 1}
            continue
        truths = asked.truth(limited(rows, model.schema, dict(found.limits)))
        for figure, truth in zip(found.figures, truths, strict=True):
            if np.isnan(truth):
                continue
            if figure.low is None or figure.high is None:
                yield {"kind": asked.kind, "none": 1}
                continue
            held = figure.low - 1e-12 <= truth <= figure.high + 1e-12
            error = abs(figure.estimate - truth) / max(figure.standard_error, 1e-300)
            told = {"cautioned": int(bool(found.cautions)), "bounds": int(figure.bounds)}
            told |= {"held_plainly": int(held and not found.cautions)}
            yield {"kind": asked.kind, "n": 1, "held": int(held), "beyond_3": int(error > 3), **told}


def run_one(job: tuple[str, str, float, int, str]) -> str:
    """One release of a table; its sums by kind are kept in a file of their own."""
    name, way, epsilon, seed, folder = job
    place = Path(folder) / f"{name}-{way.replace(' ', '_').replace(',', '')}-{epsilon:g}-{seed}.json"
    if not place.is_file():
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for each in judge(name, way, epsilon, seed):
            for key, value in each.items():
                if key != "kind":
                    sums[each["kind"]][key] += value
        told = {"table": name, "way": way, "epsilon": epsilon, "seed": seed, "kinds": sums}
        write_text(place, json.dumps(told) + "\n")
    return place.name


def run(folder: Path, releases: int, jobs: int, epsilons: Sequence[float] = EPSILONS) -> None:
    """So many releases of every table, way and epsilon, in so many processes; those that were kept are not repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    todo = [
        (name, way, epsilon, seed, str(folder))
        for seed in range(releases)
        for name in TABLES
        for way in ways_of(name)
        for epsilon in epsilons
    ]
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(run_one, todo, chunksize=1))


def _chance(held: float, of: float) -> float:
    """The chance that no more of so many independent 95% intervals hold."""
    from scipy.stats import binom

    return float(binom.cdf(held, of, 0.95))


def page(folder: Path, out: Path) -> list[str]:
    """The page of what was kept; returns the rows that fail."""
    sums: dict[tuple[str, float, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for place in sorted(folder.glob("*.json")):
        held = json.loads(place.read_text())
        for kind, own in held["kinds"].items():
            for key, value in own.items():
                sums[held["way"], held["epsilon"], kind][key] += value
    lines, failed = [], []
    for (way, epsilon, kind), own in sorted(sums.items()):
        n = own.get("n", 0.0)
        covered = own.get("held", 0.0) / n if n else float("nan")
        told = own.get("cautioned", 0.0) / n if n else float("nan")
        plain, plainly = n - own.get("cautioned", 0.0), own.get("held_plainly", 0.0)
        fails = bool(plain) and plainly < LEAST * plain and _chance(plainly, plain) < 0.01
        verdict = "**FAILS**" if fails else "CAUTION" if n and covered < LEAST and not plain else ""
        counts = [f"{own.get(key, 0.0):,.0f}" for key in ("none", "refused")]
        cells = ["-", "-", "-"] if not n else [f"{covered:.1%}", f"{told:.0%}", f"{own.get('bounds', 0.0) / n:.0%}"]
        cells.insert(1, f"{plainly / plain:.1%}" if plain else "-")
        lines.append([way, f"{epsilon:g}", kind, f"{n:,.0f}", *cells, *counts, verdict])
        failed += [f"{way}, epsilon {epsilon:g}, {kind}: {plainly / plain:.1%} of {plain:,.0f}"] if fails else []
    head = [
        "way",
        "epsilon",
        "question",
        "intervals",
        "hold",
        "of those without CAUTION",
        "cautioned",
        "bounds",
        "none",
        "refused",
        "",
    ]
    sentences = (
        "How often 95% intervals hold the truth of raw values, where domains are found, people are counted, or a "
        "statistic is of three columns. In the picture each dot is a kind of question, over all ways. An answer that "
        "cannot vouch for its interval says CAUTION."
    )
    methods = (__doc__ or "").split("\n\n", 2)[2].strip()
    methods += f"\n\nTables of about {ROWS:,} rows: {', '.join(TABLES)}. *None*: figures without an interval."
    shown = f"{record.table(head, lines)}\n\nRows that fail: "
    shown += "none." if not failed else "\n\n- " + "\n- ".join(failed)
    text = record.told("Inference: the truth of raw values", sentences, shown, methods)
    series: dict[str, dict[str, float]] = {}
    for epsilon in sorted({each for _, each, _ in sums}):
        for kind in sorted({each for *_, each in sums}):
            own = [each for (_, at, what), each in sums.items() if (at, what) == (epsilon, kind) and each.get("n")]
            if own:
                shares = sum(each.get("held", 0.0) for each in own) / sum(each["n"] for each in own)
                series.setdefault(f"epsilon {epsilon:g}", {})[kind] = shares
    pictures = {"inference_raw": dots("Coverage of 95% intervals", "share that hold the truth", series, line=0.95)}
    document = {"header": record.header("inference"), "results": [dict(zip(head, line, strict=True)) for line in lines]}
    record.write(out, "inference_raw", document=document, markdown=text, figures=pictures)
    return failed
