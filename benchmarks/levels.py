"""A release of a table of very many levels: seconds, memory and temporary files by stage.

    python -m benchmarks.levels --levels 40000 --attributes 400 --stage all --json build/levels.json

Rows are generated: every attribute follows a few classes. Memory that only the process holds (anonymous) is told apart
from pages of mapped files, which the system takes back when others need the room. `--stage measure` ends with the noisy
tables, `fit` with the model, `all` saves and verifies it and draws the rows again. Laplace noise is measured at once,
Gaussian noise in two stages, with a look at all tables between them.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.stopwatch import Stopwatch, machine

from benchmarks.pages import versions
from sklar.files.model import fit_tables
from sklar.files.write import write_text
from sklar.kernel.theorems import Budget, Mechanism
from sklar.machine.spill import memory
from sklar.machine.threads import using, workers
from sklar.public.schema import Attribute, Schema
from sklar.release import measure
from sklar.trust.verify import verify

CLASSES = 8
SEED = 1


def table(schema: Schema, rows: int) -> pl.DataFrame:
    """Rows in which every attribute depends on one of a few classes."""
    generator = np.random.default_rng(SEED)
    of_row = generator.integers(CLASSES, size=rows)
    columns = {}
    for attribute in schema.attributes:
        center = generator.random(CLASSES)[of_row]
        drawn = (center + 0.15 * generator.standard_normal(rows)) % 1.0
        columns[attribute.name] = pl.Series((drawn * attribute.n_levels).astype(np.int64))
    return pl.DataFrame(columns)


class Watch(Stopwatch):
    """Stages with the most memory that each has had, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self.most: dict[str, dict[str, int]] = {}
        self._over = threading.Event()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at the memory while the block runs."""
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self.stop()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            seen = self.most.setdefault(self._name, {})
            for name, size in resident().items():
                seen[name] = max(seen.get(name, 0), size)


def resident() -> dict[str, int]:
    """Bytes in memory: those of the process alone, and pages of files; and bytes in temporary files without a name."""
    found = {"anonymous": 0, "files": 0, "disk": 0}
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            found["anonymous" if name == "RssAnon" else "files"] += int(rest.split()[0]) << 10
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith("(deleted)"):
            first, last = line.split()[0].split("-")
            found["disk"] += int(last, 16) - int(first, 16)
    return found


@click.command(help=__doc__)
@click.option("--levels", type=click.IntRange(2), default=40_000, show_default=True)
@click.option("--attributes", type=click.IntRange(1), default=400, show_default=True)
@click.option("--rows", type=click.IntRange(1), default=500_000, show_default=True)
@click.option("--epsilon", type=float, default=50.0, show_default=True)
@click.option("--mechanism", type=click.Choice(["gaussian", "laplace"]), default="gaussian", show_default=True)
@click.option("--stage", type=click.Choice(["measure", "fit", "all"]), default="all", show_default=True)
@click.option("--threads", type=click.IntRange(1))
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this file.")
def main(
    *,
    levels: int,
    attributes: int,
    rows: int,
    epsilon: float,
    mechanism: Mechanism,
    stage: str,
    threads: int | None,
    out: Path | None,
) -> None:
    """Release a table of this size and print what each stage took."""
    sizes = [levels // attributes + (number < levels % attributes) for number in range(attributes)]
    schema = Schema(
        name="levels",
        attributes=tuple(
            Attribute(name=f"a{number}", kind="integer", edges=tuple(range(size + 1)))
            for number, size in enumerate(sizes)
        ),
    ).checked()
    watch, begun = Watch(), time.perf_counter()
    with using(threads), tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.parquet"
        table(schema, rows).write_parquet(source)
        with watch.looking():
            measured = measure(source, schema, Budget(epsilon=epsilon, mechanism=mechanism), progress=watch)
            if stage != "measure":
                model = fit_tables(measured, progress=watch)
            if stage == "all":
                watch.stage("save")
                model.save(Path(folder) / "levels.sklar")
                model.write(Path(folder) / "drawn.parquet", seed=SEED, progress=watch)
                del model, measured
                watch.stage("verify")
                if not (result := verify(Path(folder) / "levels.sklar")).passed:
                    raise click.ClickException("\n".join(check.detail for check in result.checks if not check.passed))
    document: dict[str, Any] = {
        "machine": machine(),
        **versions(),
        "memory": memory(),
        "threads": threads or workers(),
        "levels": levels,
        "attributes": attributes,
        "cells": schema.cells.n_cells,
        "rows": rows,
        "seconds": time.perf_counter() - begun,
        "stages": {
            name: {"seconds": lap.seconds, "cpu_seconds": lap.cpu_seconds, **watch.most.get(name, {})}
            for name, lap in watch.laps.items()
        },
        "load": os.getloadavg()[0],
    }
    click.echo(f"{document['machine']}, {memory() / 2**30:.0f} GiB; load {document['load']:.1f}")
    click.echo(
        f"{rows:,} rows x {attributes:,} attributes, {levels:,} levels, {schema.cells.n_cells:,} two-way cells\n"
    )
    click.echo("| stage | seconds | CPU seconds | anonymous, GB | mapped pages, GB | temporary files, GB |")
    click.echo("|---|---:|---:|---:|---:|---:|")
    for name, lap in document["stages"].items():
        sizes_gb = " | ".join(f"{lap.get(kind, 0) / 1e9:.1f}" for kind in ("anonymous", "files", "disk"))
        click.echo(f"| {name} | {lap['seconds']:.0f} | {lap['cpu_seconds']:.0f} | {sizes_gb} |")
    if out is not None:
        write_text(out, json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
