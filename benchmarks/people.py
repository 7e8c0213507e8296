"""Choosing rows by person at size: time and peak memory of counting a table in which people have many rows.

    python -m benchmarks.people --rows 50_000_000 --people 5_000_000

makes Parquet files of visits in any order (in a folder that is deleted in the end), counts them in a process of its
own, with `count = "rows"` and with `count = "people"`, and prints what each took.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from sklar.public.schema import Schema

FILES = 10
ATTRIBUTES = 8
LEVELS = 10


def schema(count: str, rows_per_person: int) -> Schema:
    """Eight attributes of ten levels, for people."""
    how = f'count = "{count}"\n' + (f"rows_per_person = {rows_per_person}\n" if count == "rows" else "")
    columns = "".join(
        f'[attributes.a{number}]\ntype = "integer"\nedges = {list(range(LEVELS + 1))}\n' for number in range(ATTRIBUTES)
    )
    return Schema.from_toml(f'[table]\nname = "visits"\nperson = "patient"\n{how}{columns}')


def make(folder: Path, rows: int, people: int) -> None:
    """Visits of people in any order, a tenth of them in each file: ids are texts, as in most registers."""
    for number in range(FILES):
        generator, size = np.random.default_rng(number), rows // FILES
        columns = {"patient": pl.Series(generator.integers(0, people, size)).cast(pl.String)}
        columns |= {f"a{i}": pl.Series(generator.integers(0, LEVELS, size, dtype=np.int8)) for i in range(ATTRIBUTES)}
        pl.DataFrame(columns).write_parquet(folder / f"{number}.parquet")


def count(folder: Path, how: str, rows_per_person: int) -> None:
    """Count in this process, and print what it took."""
    from sklar.rows.count import ask_all
    from sklar.rows.engines import open_table

    described = schema(how, rows_per_person)
    start = time.perf_counter()
    counts = open_table(folder, described).count(ask_all(described))
    seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    took = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
    sys.stdout.write(json.dumps(took | {"counted": counts.n_rows}))


def main() -> None:
    """Make the files, and count them both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--people", type=int, default=5_000_000)
    parser.add_argument("--rows-per-person", type=int, default=8)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", choices=("people", "rows"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        count(given.folder, given.count, given.rows_per_person)
        return
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), given.rows, given.people)
        sys.stdout.write(
            f"{given.rows:,} rows of {given.people:,} people, {ATTRIBUTES} attributes of {LEVELS} levels\n"
        )
        for how in ("people", "rows"):
            again = [sys.executable, "-m", "benchmarks.people", "--folder", name, "--count", how]
            again += ["--rows-per-person", str(given.rows_per_person)]
            done = subprocess.run(again, capture_output=True, text=True, check=True)  # noqa: S603
            found = json.loads(done.stdout)
            sys.stdout.write(
                f"count = {how:<8}{found['seconds']:>8.1f} s{found['cpu_seconds']:>8.1f} s of CPU"
                f"{found['peak_bytes'] / 1e9:>8.2f} GB at most"
                f"{found['counted']:>14,} rows counted\n"
            )


if __name__ == "__main__":
    main()
