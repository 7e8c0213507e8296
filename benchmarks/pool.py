"""Run AIM and MST for a list of jobs, several at a time, with nothing but the standard library.

    python -P benchmarks/pool.py FOLDER --processes 16 --seconds 1000

FOLDER holds `jobs.txt`, a job in a line, the most urgent first: TABLE METHOD EPSILON DRAW. It holds TABLE.npz for each
table. `graphical.py` beside this file runs each job on one core and one thread. A job leaves its rows in
TABLE.METHOD.EPSILON.DRAW.npz and its rounds in a .log; one that has its rows is not run again. So the folder may be
made on one machine, worked on by another, and brought back. When the time is nearly over AIM ends its round and draws
rows; what still runs after all of `--seconds` is killed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

# Seconds that a stopped run has for its last round and for drawing rows, and the least that a run is started with.
RESERVE = 100.0
LEAST = 60.0

Job = tuple[str, str, str, str]


def wanted(folder: Path) -> list[Job]:
    """The jobs that have no rows yet."""
    jobs: list[Job] = []
    for line in (folder / "jobs.txt").read_text(encoding="utf-8").splitlines():
        table, method, epsilon, draw = line.split()
        if not (folder / f"{table}.{method}.{epsilon}.{draw}.npz").exists():
            jobs.append((table, method, epsilon, draw))
    return jobs


def start(folder: Path, job: Job, core: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start a job on one core."""
    table, method, epsilon, _ = job
    # A method whose name ends so keeps its own promise, where a row is added or removed.
    neighbors = "add-remove" if method.endswith("+") else "replace-one"
    stem = ".".join(job)
    script = str(Path(__file__).with_name("graphical.py"))
    command = [
        sys.executable,
        "-P",
        script,
        method.rstrip("+"),
        str(folder / f"{table}.npz"),
        str(folder / f"{stem}.npz"),
    ]
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with (folder / f"{stem}.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603
            [*command, "--neighbors", neighbors, "--epsilon", epsilon, "--seconds", f"{seconds:.0f}"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | one,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )


def run(folder: Path, processes: int, seconds: float) -> None:
    """Run all jobs, as many as there is time for."""
    begin, cores = time.monotonic(), sorted(os.sched_getaffinity(0))
    jobs, running = wanted(folder), dict[int, tuple[Job, subprocess.Popen[bytes]]]()
    while True:
        spent = time.monotonic() - begin
        for slot, (job, process) in list(running.items()):
            if process.poll() is None and spent > seconds:
                process.kill()
            if process.poll() is not None or spent > seconds:
                _say(spent, f"ended {'.'.join(job)}: {process.wait()}")
                del running[slot]
        for slot in range(processes):
            if slot not in running and jobs and spent + LEAST + RESERVE <= seconds:
                job = jobs.pop(0)
                running[slot] = job, start(folder, job, cores[slot % len(cores)], seconds - RESERVE - spent)
        if not running:
            _say(spent, f"{len(jobs)} jobs were not started")
            return
        time.sleep(0.5)


def _say(spent: float, what: str) -> None:
    print(f"{spent:.0f} s: {what}", flush=True)  # noqa: T201


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    asked = parser.parse_args()
    run(asked.folder, asked.processes, asked.seconds)


if __name__ == "__main__":
    main()
