"""Numbers from bounds alone, judged on raw values: `python -m benchmarks.numbers`.

Adult with nothing public of its numbers but `low` and `high` (the money columns up to a million; then all up to a
billion), beside the same release with the hand-made levels of `adult.toml` given as public.
Two generated tables: heaped incomes with a sentinel and a step, and skewed durations. For every number: the
Kolmogorov-Smirnov distance, mean and standard deviation, the shares of its heaps and of round values, each as synthetic
minus real or as a ratio. For Adult also the mean total variation of two-way tables over the hand-made levels,
and the AUC of boosted trees that were trained on the release and judged on the test split.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from numpy.typing import NDArray

import sklar
from sklar.public.schema import Schema
from sklar.rows.encode import encode

FOLDER = Path("../shared/data")
EPSILON = 1.0
DRAWS = 3
_NARROW = {
    "age": (0, 120),
    "fnlwgt": (0, 2_000_000),
    "education-num": (1, 17),
    "capital-gain": (0, 1_000_000),
    "capital-loss": (0, 1_000_000),
    "hours-per-week": (0, 100),
}
_BILLION = dict.fromkeys(_NARROW, (0, 10**9))
_HEAPS = {"capital-gain": 0, "capital-loss": 0, "hours-per-week": 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table, the schema of its release, the heaps and the step by which its numbers are judged."""

    name: str
    rows: pl.DataFrame
    schema: Schema
    numbers: tuple[str, ...]
    heaps: dict[str, float]
    steps: dict[str, int]


def ks(real: NDArray[Any], synthetic: NDArray[Any]) -> float:
    """The largest difference between two distribution functions.

    >>> ks(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 9]))
    0.25
    """
    places = np.union1d(real, synthetic)
    heights = [np.searchsorted(np.sort(each), places, side="right") / each.size for each in (real, synthetic)]
    return float(np.abs(heights[0] - heights[1]).max())


def two_way_tv(schema: Schema, real: pl.DataFrame, synthetic: pl.DataFrame) -> float:
    """The mean total variation of two-way tables over a schema's levels."""
    one, other = (encode(each.select(schema.names), schema) for each in (real, synthetic))
    total = []
    for i, j in combinations(range(schema.n_attributes), 2):
        cells = int(schema.sizes[i] * schema.sizes[j])
        shares = [
            np.bincount(each[i] * schema.sizes[j] + each[j], minlength=cells) / each.shape[1] for each in (one, other)
        ]
        total.append(0.5 * float(np.abs(shares[0] - shares[1]).sum()))
    return float(np.mean(total))


def auc_of_trees(train: pl.DataFrame, test: pl.DataFrame, target: str, positive: str) -> float:
    """The area under the curve of boosted trees trained on one table and judged on another. Needs scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import OrdinalEncoder

    names = [name for name in train.columns if name != target]
    texts = [name for name in names if test[name].dtype == pl.String]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    encoder.fit(test.select(texts).fill_null("?").to_numpy())

    def features(rows: pl.DataFrame) -> NDArray[np.float64]:
        coded = encoder.transform(rows.select(texts).fill_null("?").to_numpy())
        others = rows.select([name for name in names if name not in texts]).to_numpy()
        return np.column_stack([coded, others]).astype(np.float64)

    trees = HistGradientBoostingClassifier(random_state=0)
    trees.fit(features(train), (train[target] == positive).to_numpy())
    return float(roc_auc_score((test[target] == positive).to_numpy(), trees.predict_proba(features(test))[:, 1]))


def from_bounds(public: Schema, bounds: dict[str, tuple[int, int]], name: str) -> Schema:
    """A schema with the categories of another one, and of these numbers nothing but their bounds."""
    document = public.to_dict()
    entries = {name: entry for name, entry in document["attributes"].items() if entry["type"] == "categorical"}
    for column, (low, high) in bounds.items():
        entries[column] = {"type": "integer", "domain": "private", "low": low, "high": high}
    return Schema.from_dict({"table": {"name": name}, "attributes": entries})


def adult(folder: Path, bounds: dict[str, tuple[int, int]], name: str) -> Case:
    """Adult with numbers from bounds alone."""
    return Case(
        name=name,
        rows=pl.read_csv(folder / "adult.csv"),
        schema=from_bounds(Schema.load(folder / "adult.toml"), bounds, "adult"),
        numbers=tuple(bounds),
        heaps=dict(_HEAPS),
        steps={},
    )


def incomes(rows: int = 40_000, seed: int = 1) -> Case:
    """Heaped incomes with a sentinel and a step: a fifth is 0, most are multiples of 100 or 1,000, -9 is a refusal."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 4, rows)
    values = np.exp(generator.normal(10 + 0.3 * group, 0.8, rows))
    step = generator.choice([1000, 100, 1], rows, p=[0.5, 0.46, 0.04])
    values = (values // step * step).astype(np.int64)
    values[generator.random(rows) < 0.08] = 30_000
    values[generator.random(rows) < 0.2] = 0
    values[generator.random(rows) < 0.05] = -9
    toml = """
[attributes.income]
type = "integer"
domain = "private"
low = 0
high = 1_000_000_000
special = [-9]

[attributes.group]
type = "integer"
edges = [0, 1, 2, 3, 4]
"""
    return Case(
        name="heaped incomes (generated)",
        rows=pl.DataFrame({"income": values, "group": group}),
        schema=Schema.from_toml(toml),
        numbers=("income",),
        heaps={"income": 0},
        steps={"income": 100},
    )


def durations(rows: int = 40_000, seed: int = 2) -> Case:
    """Skewed durations in seconds with two decimals, and the dates on which they began."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, 3, rows)
    values = np.round(np.exp(generator.normal(2 + kind, 1.2, rows)), 2)
    days = (generator.beta(2, 1, rows) * 1400).astype(np.int64) + 18_000
    toml = """
[attributes.seconds]
type = "real"
domain = "private"
low = 0
high = 1_000_000

[attributes.began]
type = "date"
domain = "private"
low = "1990-01-01"
high = "2030-01-01"

[attributes.kind]
type = "integer"
edges = [0, 1, 2, 3]
"""
    return Case(
        name="skewed durations (generated)",
        rows=pl.DataFrame({"seconds": values, "began": pl.Series(days).cast(pl.Int32).cast(pl.Date), "kind": kind}),
        schema=Schema.from_toml(toml),
        numbers=("seconds", "began"),
        heaps={},
        steps={},
    )


def numbers_of(rows: pl.DataFrame, name: str, sentinels: Sequence[Any]) -> NDArray[Any]:
    """A column's numbers without its sentinels; dates in days."""
    column = rows[name].drop_nulls()
    found = (column.cast(pl.Int32) if column.dtype == pl.Date else column).to_numpy()
    return found[~np.isin(found, [value for value in sentinels if not isinstance(value, str)])]


def judge(case: Case, drawn: pl.DataFrame) -> list[str]:
    """A line for every number."""
    lines = []
    for name in case.numbers:
        special = case.schema.attribute(name).special
        real, other = (numbers_of(rows, name, special) for rows in (case.rows, drawn))
        line = (
            f"  {name:<15} KS {ks(real, other):.4f}  mean {other.mean() / real.mean() - 1:+7.1%}  "
            f"sd {other.std() / real.std() - 1:+7.1%}  within {other.min():,.6g} to {other.max():,.6g}"
        )
        if name in case.heaps:
            heap = case.heaps[name]
            line += f"  = {heap:g}: {np.mean(other == heap) - np.mean(real == heap):+.2%}"
        if name in case.steps:
            step = case.steps[name]
            line += f"  x {step:g}: {np.mean(other % step == 0):.1%} for {np.mean(real % step == 0):.1%}"
        if real.dtype.kind == "f":
            line += f"  two decimals: {np.mean(np.abs(other * 100 - np.rint(other * 100)) < 1e-6):.1%}"
        lines.append(line)
    return lines


def run(case: Case, draws: int, epsilon: float, extra: Callable[[pl.DataFrame], str] | None = None) -> None:
    """Release a table several times and print how near its numbers came."""
    click.echo(f"{case.name}: {case.rows.height:,} rows, epsilon {epsilon:g}, {draws} draws")
    for draw in range(draws):
        model = sklar.fit(case.rows, case.schema, epsilon=epsilon)
        rows = model.sample(seed=draw)
        after = "" if extra is None else extra(rows)
        click.echo(f" draw {draw + 1}: search {model.certificate.search_share:.1%} of the cost{after}")
        click.echo("\n".join(judge(case, rows)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--epsilon", type=float, default=EPSILON)
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where adult.csv, adult_test.csv and adult.toml are"
    )
    parser.add_argument("--only", choices=["adult", "billion", "incomes", "durations", "few"], help="one table alone")
    given = parser.parse_args(arguments)
    wanted = [given.only] if given.only else ["adult", "billion", "incomes", "durations"]
    if {"adult", "billion", "few"} & {*wanted} and not (given.folder / "adult.csv").exists():
        click.echo(f"Adult is not in {given.folder}: left out.")
        wanted = [each for each in wanted if each in ("incomes", "durations")]
    if "adult" in wanted:
        _run_adult(given.folder, given.draws, given.epsilon)
    if "billion" in wanted:
        run(adult(given.folder, _BILLION, "Adult, all bounds 1e9"), given.draws, given.epsilon)
    if "few" in wanted:
        case = adult(given.folder, _NARROW, "Adult, 10,000 rows")
        run(replace(case, rows=case.rows.sample(10_000, seed=1)), given.draws, given.epsilon)
    for name, make in (("incomes", incomes), ("durations", durations)):
        if name in wanted:
            run(make(), given.draws, given.epsilon)


def _run_adult(folder: Path, draws: int, epsilon: float) -> None:
    public, test = Schema.load(folder / "adult.toml"), pl.read_csv(folder / "adult_test.csv")
    case = adult(folder, _NARROW, "Adult from bounds, money up to 1e6")
    base = [
        two_way_tv(public, case.rows, sklar.fit(case.rows, public, epsilon=epsilon).sample(seed=draw))
        for draw in range(draws)
    ]
    click.echo(
        f"Hand-made levels given as public: TV2 {np.mean(base):.5f} (draws {', '.join(f'{each:.5f}' for each in base)})"
    )
    seen: list[float] = []

    def extra(rows: pl.DataFrame) -> str:
        seen.append(two_way_tv(public, case.rows, rows))
        area = auc_of_trees(rows.select(test.columns), test, "income", ">50K")
        return f", TV2 over hand-made levels {seen[-1]:.5f}, AUC of boosted trees {area:.4f}"

    run(case, draws, epsilon, extra)
    click.echo(f" TV2 {np.mean(seen):.5f}, {np.mean(seen) / np.mean(base) - 1:+.1%} beside public levels")


if __name__ == "__main__":
    main()
