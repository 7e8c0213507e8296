"""Rows under a condition beside rejection: the same distribution, and how long each takes.

`python -m benchmarks.conditions` fits a model to a generated census and draws the same number of rows under conditions
of falling probability, exactly (components reweighted, levels restricted) and by drawing rows and keeping those that
satisfy the condition. It prints seconds and the largest difference of one-way shares beside what sampling explains;
`--page` writes docs/results/conditions.md.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import sklar
from sklar.answer.condition import Given, condition_of
from sklar.draw.given import RejectingSampler, given_sampler
from sklar.files.model import Model
from sklar.generate import generate, schema_toml

PAGE = Path(__file__).parent.parent / "docs" / "results" / "conditions.md"
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


def compare(model: Model, given: Given, rows: int) -> list[str]:
    """One line: the condition, how rare it is, seconds of both ways, and how far apart they are in standard errors."""
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
    return [
        _text(given),
        f"{share:.2g}",
        f"{seconds[0]:.2f}",
        f"{seconds[1]:.2f}",
        f"{seconds[1] / max(seconds[0], 1e-3):,.1f}",
        f"{apart.max():.1f} of {math.sqrt(2 * math.log(offsets[-1])):.1f}",
    ]


def _text(given: Given) -> str:
    if isinstance(given, str):
        return given
    parts = [
        f"{value[0]} <= {name} < {value[1]}" if isinstance(value, tuple) else f"{name} = '{value}'"
        for name, value in given.items()
    ]
    return " and ".join(parts)


def main() -> None:
    """Print the table, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--table-rows", type=int, default=10_000)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    model = fitted(options.table_rows)
    head = ["condition", "its share", "exact, CPU s", "rejection, CPU s", "times as fast", "largest difference"]
    lines = [" | ".join(head), " | ".join(["---"] + ["---:"] * 5)]
    lines += [" | ".join(compare(model, given, options.rows)) for given in CONDITIONS]
    text = "\n".join(f"| {line} |" for line in lines)
    print(text)  # noqa: T201
    if options.page:
        PAGE.write_text(
            "# Rows under conditions\n\n"
            f"`python -m benchmarks.conditions --rows {options.rows} --table-rows {options.table_rows} --page` on a "
            f"model of a generated census at epsilon 4: {options.rows:,} rows under each condition, exactly and by "
            "rejection.\n\n"
            f"{text}\n\n"
            "The largest difference is that of the shares of all levels between the two samples, in standard errors\n"
            "of independent draws, beside about what the largest of so many is by chance. `tests/draw/test_given.py`\n"
            "holds both to the law that brute force gives.\n"
        )


if __name__ == "__main__":
    main()
