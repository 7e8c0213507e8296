"""Rows under a condition beside rejection: the same distribution, and how long each takes.

`python -m benchmarks.conditions` fits a model to a generated census and draws the same number of rows under conditions
of falling probability, exactly (components reweighted, levels restricted) and by drawing rows and keeping those that
satisfy the condition. It prints seconds and the largest difference of one-way shares beside what sampling explains;
`--page` writes docs/results/conditions.*.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
from experiments.figures import dots
from numpy.typing import NDArray

import sklar
from experiments import record
from sklar.answer.condition import Given, condition_of
from sklar.draw.given import RejectingSampler, given_sampler
from sklar.files.model import Model
from sklar.generate import generate, schema_toml

CONDITIONS: tuple[Given, ...] = (
    {"sex": "Female"},
    {"sex": "Female", "age": (30, 45)},
    {"sex": "Female", "age": (30, 45), "education": "Doctorate"},
    {"sex": "Female", "age": (32, 37), "education": "Doctorate"},
)


def fitted(rows: int) -> Model:
    """A model of a generated census."""
    frame = pl.concat(generate("census", rows=rows, seed=0)[1])
    return sklar.fit(frame, sklar.Schema.from_toml(schema_toml("census")), epsilon=4.0)


def shares(codes: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of all levels."""
    counts = np.bincount((codes + offsets[:-1, None]).ravel(), minlength=int(offsets[-1]))
    return np.asarray(counts / codes.shape[1])


def compare(model: Model, given: Given, rows: int) -> dict[str, Any]:
    """The condition, how rare it is, CPU seconds of both ways, and how far apart they are in standard errors, beside
    what the largest of so many differences is by chance.
    """
    condition, _ = condition_of(given, model.schema, model.shapes)
    exact, rejecting = given_sampler(model.copula, condition), RejectingSampler(model.copula, condition)
    drawn, seconds = [], []
    for sampler in (exact, rejecting):
        sampler.draw(1, 0, 10)
        before = time.process_time()
        drawn.append(sampler.draw(2, 0, rows))
        seconds.append(time.process_time() - before)
    offsets = condition.schema.measured.cells.offsets
    one, other = (shares(codes, offsets) for codes in drawn)
    mean = (one + other) / 2
    apart = np.abs(one - other) / np.sqrt(np.maximum(2 * mean * (1 - mean), 1e-12) / rows)
    share = model.query(_text(given)).synthetic / model.n_rows
    return {
        "condition": _text(given),
        "share": float(f"{share:.2g}"),
        "exact": round(seconds[0], 4),
        "rejection": round(seconds[1], 4),
        "apart": round(float(apart.max()), 2),
        "by_chance": round(math.sqrt(2 * math.log(offsets[-1])), 2),
    }


def _text(given: Given) -> str:
    if isinstance(given, str):
        return given
    parts = [
        f"{value[0]} <= {name} < {value[1]}" if isinstance(value, tuple) else f"{name} = '{value}'"
        for name, value in given.items()
    ]
    return " and ".join(parts)


def markdown(found: Sequence[Mapping[str, Any]], rows: int, table_rows: int) -> str:
    """The page."""
    lines = [
        [
            each["condition"],
            f"{each['share']:g}",
            f"{each['exact']:.2f}",
            f"{each['rejection']:.2f}",
            f"{each['rejection'] / max(each['exact'], 1e-3):,.1f}",
            f"{each['apart']:.1f} of {each['by_chance']:.1f}",
        ]
        for each in found
    ]
    head = ["condition", "its share", "exact, CPU s", "rejection, CPU s", "times as fast", "largest difference"]
    sentences = (
        "How long rows under a condition take, drawn exactly and by drawing rows until enough satisfy it. Both have "
        "the same distribution. The rarer the condition is, the more rejection takes."
    )
    methods = (
        f"A model of a generated census of {table_rows:,} rows at epsilon 4, {rows:,} rows under each condition. The "
        "largest difference is that of the shares of all levels between the two samples, in standard errors of "
        "independent draws, beside about what the largest of so many is by chance. `tests/draw/test_given.py` holds "
        "both to the law that brute force gives."
    )
    return record.told("Rows under conditions", sentences, record.table(head, lines), methods)


@click.command(help=__doc__)
@click.option("--rows", default=2_000, show_default=True)
@click.option("--table-rows", default=10_000, show_default=True)
@click.option("--page", is_flag=True, help="Write docs/results/conditions.*.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=record.RESULTS, hidden=True)
def main(*, rows: int, table_rows: int, page: bool, out: Path) -> None:
    """Print the table, and write the page if asked to."""
    model = fitted(table_rows)
    found = [compare(model, given, rows) for given in CONDITIONS]
    text = markdown(found, rows, table_rows)
    if not page:
        click.echo(text)
        return
    series = {way: {each["condition"]: max(each[way], 1e-3) for each in found} for way in ("rejection", "exact")}
    document = {"header": record.header("benchmarks.conditions"), "conditions": found}
    pictures = {"conditions": dots(f"{rows:,} rows under a condition", "CPU seconds", series, log=True)}
    record.write(out, "conditions", document=document, markdown=text, figures=pictures)


if __name__ == "__main__":
    main()
