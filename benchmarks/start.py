"""How long commands take on a new machine, and the next time: `python -m benchmarks.start`.

Every command runs in a process of its own, first with an empty cache for compiled code (cold), then again (warm), and
its processor time is taken, that of processes that it started included. `--before FOLDER` runs another version of the
package, from its `src` folder, beside this one. `--crossover` times small work in NumPy and in compiled code: where the
second begins to pay is where the package changes over. `--fresh` goes from nothing (a new virtual environment, an
empty home) to the first release of a CSV file, stage by stage. `--page` writes what it prints into
docs/results/start.*.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from experiments.figures import dots

from benchmarks.pages import ROOT
from benchmarks.tables import FOLDER
from experiments import record

_TOLD = """\
How long a command takes the first time on a new machine, when compiled code is not there yet, and the next time. The
picture has processor seconds of all threads and processes. Below is also the whole way from `pip install` to the first
release."""
_METHODS = """\
Every command runs in a process of its own, first with an empty cache for compiled code (cold), then again (warm):
medians of {runs} runs. Where compiled code pays, a unit of work is timed in NumPy and in compiled code, each alone in
its process; the package changes over where the second begins to pay. The way from nothing starts with a new virtual
environment and an empty home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Seconds of the wall clock and of processors."""

    wall: float
    cpu: float


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Took:
    """Run a command, and what it took with all the processes that it waited for; an error where it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)  # noqa: S603
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise click.ClickException(f"{' '.join(command)} failed:\n{said.read().decode()[-2_000:]}")
    return Took(wall=time.perf_counter() - began, cpu=usage.ru_utime + usage.ru_stime)


def commands(adult: Path) -> dict[str, list[str]]:
    """What people run first, by name; later ones read what the first one wrote."""
    table, schema = str(adult / "adult.csv"), str(adult / "adult.toml")
    return {
        "release of Adult": ["release", table, "--schema", schema, "--epsilon", "1", "--out", "adult-synthetic.csv"],
        "demo": ["demo", "--out", "demo"],
        "verify": ["verify", "adult-synthetic.sklar"],
        "query": ["query", "adult-synthetic.sklar", "age >= 30 and age < 45"],
        "report": ["report", "adult-synthetic.sklar", "--out", "report.html"],
        "forecast": ["forecast", "--schema", schema, "--rows", "30000", "--epsilon", "1"],
        "sample 1,000 rows": ["sample", "adult-synthetic.sklar", "--rows", "1000", "--out", "more.csv"],
        "schema check": ["schema", "check", schema, table],
        "--help": ["--help"],
    }


def start_times(adult: Path, source: Path, runs: int) -> dict[str, tuple[float, float]]:
    """Median processor seconds of every command, cold and warm, of the package in this `src` folder."""
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        work, cache = Path(place), Path(place) / "cache"
        environment = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache), "HOME": place}
        for name, arguments in commands(adult).items():
            cold: list[float] = []
            warm: list[float] = []
            for _ in range(runs):
                shutil.rmtree(cache, ignore_errors=True)
                cache.mkdir(mode=0o700)
                for times in (cold, warm):
                    for left in work.glob("demo"):
                        shutil.rmtree(left)
                    times.append(timed([sys.executable, "-m", "sklar", *arguments], work, environment).cpu)
            found[name] = (statistics.median(cold), statistics.median(warm))
    return found


def start_table(now: dict[str, tuple[float, float]], before: dict[str, tuple[float, float]] | None) -> Iterator[str]:
    """Cold and warm beside each other; before and after too."""
    if before is None:
        yield "| command | cold | warm |"
        yield "|---|---:|---:|"
        yield from (f"| {name} | {cold:.2f} | {warm:.2f} |" for name, (cold, warm) in now.items())
        return
    yield "| command | cold, before | cold | warm, before | warm |"
    yield "|---|---:|---:|---:|---:|"
    for name, (cold, warm) in now.items():
        yield f"| {name} | {before[name][0]:.2f} | {cold:.2f} | {before[name][1]:.2f} | {warm:.2f} |"


def crossover_table() -> Iterator[str]:
    """What a unit of work costs in NumPy and in compiled code, and where the second pays, cold and warm."""
    yield "| work | unit | plain, us | compiled, us | to compile, s | to load, s | pays from (cold / warm) | set at |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, unit, plain, fast, (cold, warm), chosen in _crossovers():
        gain = max(plain - fast, 1e-12)
        yield (
            f"| {name} | {unit} | {plain * 1e6:.3g} | {fast * 1e6:.3g} | {cold:.2f} | {warm:.2f} "
            f"| {cold / gain:,.0f} / {warm / gain:,.0f} | {chosen} |"
        )


def _crossovers() -> Iterator[tuple[str, str, float, float, tuple[float, float], str]]:
    from sklar.draw import refine
    from sklar.fitting import steps
    from sklar.fitting.descent import SMALL
    from sklar.kernel.cells import Cells

    rng = np.random.default_rng(0)
    rows = rng.integers(0, 5, (1_000, 14)).astype(np.int32) + 5 * np.arange(14, dtype=np.int32)
    bounds, errors = np.linspace(0, 1_000, 101).astype(np.int64), np.full((70, 70), -10_240, dtype=np.int32)
    last = (1, np.uint64(7))
    none = (np.empty(0, dtype=np.int32), np.empty((14, 0, 6), dtype=np.int64))
    work = rows.size * rows.shape[1]
    yield (
        "exchanges between rows",
        "rows x attributes^2",
        _each(lambda: refine.exchange_plainly(rows.copy(), bounds, errors.copy(), *last), work),
        _each(lambda: refine.exchange(rows.copy(), bounds, errors.copy(), *none, *last), work),
        _loading("from sklar.draw import refine", "refine.exchange.kernel"),
        f"{vars(refine)['_PLAIN_WORK']:,}",
    )
    for contrasts in (180, 300):
        cells = Cells([contrasts // 10 + 1] * 10)
        first = rng.standard_normal((cells.n_levels, 150)).astype(np.float32)
        plain, fast = (_step(kind(cells, first, damping=0.1)) for kind in (steps.Logits, steps.CompiledLogits))
        compiling = "for name in ('_softmax', '_through_softmax', '_move'): vars(steps)[name].kernel"
        loading = _loading("from sklar.fitting import steps", compiling)
        yield f"steps of a fit, {contrasts} contrasts", "step", plain, fast, loading, f"{SMALL} contrasts"


def _step(logits: Any) -> float:
    pull = np.random.default_rng(0).standard_normal(logits.contrasts.shape).astype(np.float32)
    return _each(lambda: logits.move(pull, pull[:, :1]), 1)


def _each(work: Callable[[], object], size: float) -> float:
    """The least processor seconds of a unit in some runs; the first run, which may compile, is not taken."""
    work()
    least = np.inf
    for _ in range(5):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return float(least / size)


def _loading(module: str, compiling: str) -> tuple[float, float]:
    """Processor seconds to compile something with an empty cache, and to load it from the cache; numba's import too."""
    code = f"import time\n{module}\nbegan = time.process_time()\n{compiling}\nprint(time.process_time() - began)"
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT / "src")}
        cold, warm = (
            float(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))  # noqa: S603
            for _ in range(2)
        )
    return cold, warm


def fresh_table(adult: Path, python: str) -> Iterator[str]:
    """From an empty home and no environment to the first release of adult.csv, and the next one."""
    yield "| stage | wall, s | processor, s |"
    yield "|---|---:|---:|"
    total = 0.0
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        environment = {"HOME": place, "PATH": os.environ["PATH"]}
        environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        own = home / "venv" / "bin"
        source = home / "source"
        shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        release = commands(adult)["release of Adult"]
        stages = {
            "python -m venv": [python, "-m", "venv", str(home / "venv")],
            "pip install": [str(own / "pip"), "--disable-pip-version-check", "install", "--quiet", str(source)],
            "the first sklar --help": [str(own / "sklar"), "--help"],
            "the first release of adult.csv": [str(own / "sklar"), *release],
            "the next release": [str(own / "sklar"), *release],
        }
        for name, command in stages.items():
            took = timed(command, home, environment)
            total += took.wall if name != "the next release" else 0.0
            yield f"| {name} | {took.wall:.1f} | {took.cpu:.1f} |"
    yield f"| from nothing to the first release | {total:.1f} | |"


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path), default=FOLDER, help="Where adult.csv and adult.toml are.")
@click.option("--before", type=click.Path(path_type=Path, exists=True), help="The src folder of another version.")
@click.option("--runs", type=int, default=1, show_default=True, help="Medians of this many runs.")
@click.option("--crossover", is_flag=True, help="Time small work in NumPy and in compiled code instead.")
@click.option("--fresh", is_flag=True, help="Time the way from pip install to the first release instead.")
@click.option("--python", default=sys.executable, help="The Python of the fresh environment.")
@click.option("--page", is_flag=True, help="All three, into docs/results/start.*.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=record.RESULTS, hidden=True)
def main(
    *, data: Path, before: Path | None, runs: int, crossover: bool, fresh: bool, python: str, page: bool, out: Path
) -> None:
    """Time commands, work or the whole way from nothing."""
    parts: dict[str, list[str]] = {}

    def show(title: str, lines: Iterator[str]) -> None:
        parts[title] = list(lines)
        click.echo("\n".join([f"## {title}", "", *parts[title]]) + "\n")

    found: dict[str, tuple[float, float]] = {}
    if page or not (crossover or fresh):
        earlier = None if before is None else start_times(data, before, runs)
        found = start_times(data, ROOT / "src", runs)
        show("Commands, processor seconds", start_table(found, earlier))
    if page or crossover:
        show("Where compiled code pays", crossover_table())
    if page or fresh:
        show("From pip install to the first release", fresh_table(data, python))
    if page:
        tables = "\n\n".join("\n".join([f"## {title}", "", *lines]) for title, lines in parts.items())
        text = record.told("From nothing to a release", _TOLD, tables, _METHODS.format(runs=runs))
        series = {
            name: {each: times[place] for each, times in found.items()} for place, name in ((0, "cold"), (1, "warm"))
        }
        document = {"header": record.header("benchmarks.start"), "commands": found, "tables": parts}
        pictures = {"start": dots("Commands, cold and warm", "processor seconds", series, log=True)}
        record.write(out, "start", document=document, markdown=text, figures=pictures)


if __name__ == "__main__":
    main()
