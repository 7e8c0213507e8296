"""Numbers from bounds alone, judged on raw values: `python -m benchmarks.numbers`.

Adult with nothing public of its numbers but `low` and `high` (the money columns up to a million; then all up to a
billion), beside the same release with the hand-made levels of `adult.toml` given as public.
Two generated tables: heaped incomes with a sentinel and a step, and skewed durations. For every number: the
Kolmogorov-Smirnov distance, mean and standard deviation, the shares of its heaps and of round values, each as synthetic
minus real or as a ratio. For Adult also the mean total variation of two-way tables over the hand-made levels,
and the AUC of boosted trees that were trained on the release and judged on the test split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.figures import dots
from numpy.typing import NDArray

import sklar
from experiments import record
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


def judge(case: Case, drawn: pl.DataFrame) -> dict[str, dict[str, float]]:
    """The figures of every number: differences and ratios of the synthetic rows beside the real ones."""
    found = {}
    for name in case.numbers:
        special = case.schema.attribute(name).special
        real, other = (numbers_of(rows, name, special) for rows in (case.rows, drawn))
        figures = {"ks": ks(real, other), "mean": float(other.mean() / real.mean() - 1)}
        figures |= {"sd": float(other.std() / real.std() - 1), "low": float(other.min()), "high": float(other.max())}
        if name in case.heaps:
            heap = case.heaps[name]
            figures["heap"] = float(np.mean(other == heap) - np.mean(real == heap))
        if name in case.steps:
            step = case.steps[name]
            figures["step"] = float(np.mean(other % step == 0) - np.mean(real % step == 0))
        found[name] = {key: float(f"{value:.6g}") for key, value in figures.items()}
    return found


def run(
    case: Case, draws: int, epsilon: float, extra: Callable[[pl.DataFrame], dict[str, float]] | None = None
) -> dict[str, Any]:
    """Release a table several times: how near its numbers came, draw by draw."""
    drawn = []
    for draw in range(draws):
        model = sklar.fit(case.rows, case.schema, epsilon=epsilon)
        rows = model.sample(seed=draw)
        found = {"search": model.certificate.search_share, "numbers": judge(case, rows)}
        drawn.append(found | ({} if extra is None else extra(rows)))
        click.echo(f"{case.name}, draw {draw + 1}: {drawn[-1]}", err=True)
    return {"name": case.name, "rows": case.rows.height, "draws": drawn}


def adult_beside(folder: Path, draws: int, epsilon: float) -> dict[str, Any]:
    """Adult from bounds, beside the same release with hand-made levels given as public."""
    public, test = Schema.load(folder / "adult.toml"), pl.read_csv(folder / "adult_test.csv")
    case = adult(folder, _NARROW, "Adult from bounds, money up to 1e6")

    def over(rows: pl.DataFrame) -> dict[str, float]:
        return {"tv2": two_way_tv(public, case.rows, rows)}

    def extra(rows: pl.DataFrame) -> dict[str, float]:
        return over(rows) | {"auc": auc_of_trees(rows.select(test.columns), test, "income", ">50K")}

    released = (sklar.fit(case.rows, public, epsilon=epsilon).sample(seed=draw) for draw in range(draws))
    base = [over(rows)["tv2"] for rows in released]
    return run(case, draws, epsilon, extra) | {"public_tv2": base}


def markdown(found: Sequence[Mapping[str, Any]], epsilon: float) -> str:
    """The page."""
    lines = []
    for each in found:
        for name in each["draws"][0]["numbers"]:
            mine = [draw["numbers"][name] for draw in each["draws"]]

            def shown(key: str, form: str, mine: list[dict[str, float]] = mine) -> str:
                held = [figures[key] for figures in mine if key in figures]
                return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (min(held), max(held)))) if held else ""

            cells = [shown(key, form) for key, form in (("ks", ".4f"), ("mean", "+.1%"), ("sd", "+.1%"))]
            cells += [shown("high", ",.6g"), shown("heap", "+.2%"), shown("step", "+.2%")]
            lines.append([f"{each['name']}: {name}", *cells])
    head = ["", "KS", "mean", "standard deviation", "largest drawn", "share of its heap", "multiples of its step"]
    beside = [each for each in found if "public_tv2" in each]
    text = record.table(head, lines)
    for each in beside:
        own, base = ([draw["tv2"] for draw in each["draws"]], each["public_tv2"])
        areas = record.spread([draw["auc"] for draw in each["draws"]], 3)
        text += (
            f"\n{each['name']}: mean total variation of two-way tables over hand-made levels "
            f"{record.spread(own, 4)}, {record.mean(own) / record.mean(base) - 1:+.1%} beside those levels given as "
            f"public ({record.spread(base, 4)}); AUC of boosted trees {areas}."
        )
    sentences = (
        "How near numbers come of which nothing is public but low and high. KS is the largest difference of the "
        "distribution functions of raw values, a dot of the picture for each number. Means and standard deviations are "
        "relative to the real ones, shares are differences."
    )
    methods = (
        f"Epsilon {epsilon:g}; the least and the largest of {len(found[0]['draws'])} draws. "
        + (__doc__ or "").split("\n\n")[1]
    )
    return record.told("Numbers from bounds alone", sentences, text, methods.replace("\n", " "))


CASES = ("adult", "billion", "few", "incomes", "durations")


@click.command(help=__doc__)
@click.option("--draws", default=DRAWS, show_default=True)
@click.option("--epsilon", default=EPSILON, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Where Adult's files are.")
@click.option("--only", type=click.Choice(CASES), help="One table alone.")
@click.option("--page", is_flag=True, help="Write docs/results/numbers.*.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=record.RESULTS, hidden=True)
def main(*, draws: int, epsilon: float, folder: Path, only: str | None, page: bool, out: Path) -> None:
    """Release every table, and write the page if asked to."""
    few = adult(folder, _NARROW, "Adult, 10,000 rows")
    made: Mapping[str, Callable[[], dict[str, Any]]] = {
        "adult": lambda: adult_beside(folder, draws, epsilon),
        "billion": lambda: run(adult(folder, _BILLION, "Adult, all bounds 1e9"), draws, epsilon),
        "few": lambda: run(replace(few, rows=few.rows.sample(10_000, seed=1)), draws, epsilon),
        "incomes": lambda: run(incomes(), draws, epsilon),
        "durations": lambda: run(durations(), draws, epsilon),
    }
    found = [made[name]() for name in ([only] if only else CASES)]
    text = markdown(found, epsilon)
    if not page:
        click.echo(text)
        return
    series: dict[str, dict[str, float]] = {"mean": {}, "largest": {}}
    for each in found:
        for name in each["draws"][0]["numbers"]:
            values = [draw["numbers"][name]["ks"] for draw in each["draws"]]
            series["mean"][f"{each['name']}: {name}"] = record.mean(values)
            series["largest"][f"{each['name']}: {name}"] = max(values)
    document = {"header": record.header("benchmarks.numbers"), "tables": found}
    pictures = {"numbers": dots("Raw values, from bounds alone", "Kolmogorov-Smirnov distance", series)}
    record.write(out, "numbers", document=document, markdown=text, figures=pictures)


if __name__ == "__main__":
    main()
