"""One release, timed stage by stage, in a process of its own: what `sklar release` does, with a stopwatch.

    python -m benchmarks.stages INPUT.parquet SCHEMA.toml FOLDER --method auto --threads 2

Writes FOLDER/release.parquet, FOLDER/release.sklar and, last, FOLDER/stages.json.
"""

from __future__ import annotations

import atexit
import gc
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from experiments.stopwatch import Stopwatch, peak_bytes

from sklar.files.model import Model
from sklar.files.write import write_text
from sklar.machine.threads import using, workers
from sklar.paper.gaussian import BinaryCopula
from sklar.public.schema import Schema
from sklar.release import fit

EPSILON = 1.0
SEED = 1


def multiplications(model: Model) -> int | None:
    """Multiply-adds that a row costs where rows are drawn through a factor of a correlation matrix; else None.

    Records need the differences between the levels of an attribute that can win: one fewer than those.
    """
    if not isinstance(model.copula, BinaryCopula):
        return None
    side = model.copula.cuts.size
    if not model.copula.dummies:
        side = int(np.isfinite(model.copula.cuts).sum()) - model.copula.schema.n_attributes
    return side * (side + 1) // 2


def timed(source: Path, schema: Schema, folder: Path, *, method: str, epsilon: float = EPSILON) -> dict[str, Any]:
    """Measure, fit, save and write as many rows as there are, and what it took."""
    watch = Stopwatch()
    model = fit(source, schema, epsilon=epsilon, method=method, progress=watch)
    watch.stage("save")
    model.save(folder / "release.sklar")
    model.write(folder / "release.parquet", seed=SEED, progress=watch)
    watch.stop()
    return {
        "rows": model.n_rows,
        "threads": workers(),
        "stages": {name: asdict(lap) for name, lap in watch.laps.items()},
        "peak_bytes": peak_bytes(),
        "input_bytes": sum(path.stat().st_size for path in (source.glob("*") if source.is_dir() else [source])),
        "output_bytes": (folder / "release.parquet").stat().st_size,
        "model_bytes": (folder / "release.sklar").stat().st_size,
        "multiplications": multiplications(model),
    }


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.argument("schema", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--method", required=True)
@click.option("--threads", type=int)
@click.option("--epsilon", type=float, default=EPSILON)
def main(source: Path, schema: Path, folder: Path, method: str, threads: int | None, epsilon: float) -> None:
    """Time one release."""
    # As the command line does.
    atexit.register(gc.freeze)
    folder.mkdir(parents=True, exist_ok=True)
    with using(threads):
        found = timed(source, Schema.load(schema), folder, method=method, epsilon=epsilon)
    write_text(folder / "stages.json", json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
