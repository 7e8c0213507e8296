"""Time one pass over a table in a process of its own, by the local engine: exact counts of generated rows.

    python -m benchmarks.counting FOLDER SCHEMA.toml OUT.json --checkpoint DIR

Prints how many rows it has counted so far, so that whoever started it can interrupt it in the middle.
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from pathlib import Path
from typing import Any

import click
from experiments.stopwatch import peak_bytes

from sklar.files.write import write_text
from sklar.machine.threads import using, workers
from sklar.public.schema import Schema
from sklar.rows.count import Exact, ask_all
from sklar.rows.engines import open_table


class Told:
    """A `Progress` that prints how many rows are counted."""

    def __init__(self) -> None:
        self._rows, self.first = 0, 0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Say nothing."""

    def advance(self, steps: int) -> None:
        """Print how many rows are counted so far."""
        self._rows += steps
        self.first = self.first or steps
        click.echo(self._rows)


def digest(counts: Exact) -> str:
    """A text that is the same for equal counts and for no others."""
    # In one width: small counts may be held in 32 bits.
    parts = (str(counts.n_rows).encode(), *(each.astype("<i8").tobytes() for each in (counts.one_way, counts.pairs)))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def cpu_seconds() -> float:
    """CPU seconds of this process and of the child processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def local(source: Path, schema: Schema, checkpoint: Path | None) -> dict[str, Any]:
    """Count by the threads of this process."""
    goes_on = checkpoint is not None and checkpoint.exists()
    told = Told()
    wall, cpu = time.perf_counter(), cpu_seconds()
    counts = open_table(source, schema, engine="local", checkpoint=checkpoint).count(ask_all(schema), progress=told)
    return {
        "rows": counts.n_rows,
        "kept_rows": told.first if goes_on else 0,
        "digest": digest(counts),
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": peak_bytes(),
    }


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.argument("schema", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--checkpoint", type=click.Path(path_type=Path))
@click.option("--threads", type=int)
def main(source: Path, schema: Path, out: Path, checkpoint: Path | None, threads: int | None) -> None:
    """Time one pass."""
    with using(threads):
        found = local(source, Schema.load(schema), checkpoint) | {"threads": workers()}
    write_text(out, json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
