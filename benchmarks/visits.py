"""What protecting people costs: generated visits, each with the attributes of its patient, released at epsilon 1.

    python -m benchmarks.visits --patients 100_000

prints mean total variation over one-way (TV1) and two-way tables (TV2) of the synthetic rows: from shares over all
rows, and from shares averaged over people. `independence` has the exact margins over rows and nothing else; `rows
unprotected` is a release for one row, whose promise to a person with k rows is k times weaker.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.generate.visits import KEY, generate_visits, hospital
from sklar.public.schema import Schema
from sklar.public.settings import Person
from sklar.release import fit
from sklar.rows.encode import encode

LIMITS = (1, 4, 8, 16)


def joined(patients: int) -> tuple[pl.DataFrame, Schema]:
    """Every visit with the attributes of its patient, and the schema of both."""
    blocks, (root, below) = list(generate_visits(patients)), hospital("patients", "visits").branches
    people, events = (pl.concat([block[each.name] for block in blocks]) for each in (root, below))
    schema = replace(root.schema, attributes=(*root.schema.attributes, *below.schema.attributes))
    return events.join(people, on=KEY, how="inner"), schema


def shares(codes: NDArray[np.int32], schema: Schema, weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """One-way and two-way tables of shares, flat, with a weight for each row."""
    sizes, found = schema.sizes.tolist(), []
    for i, size in enumerate(sizes):
        found.append(np.bincount(codes[i], weights, minlength=size))
    for i, first in enumerate(sizes):
        for j in range(i + 1, len(sizes)):
            found.append(np.bincount(codes[i] * sizes[j] + codes[j], weights, minlength=first * sizes[j]))
    return [table / weights.sum() for table in found]


def distances(one: list[NDArray[np.float64]], other: list[NDArray[np.float64]], attributes: int) -> tuple[float, float]:
    """Mean total variation of one-way and of two-way tables."""
    each = [float(np.abs(a - b).sum()) / 2 for a, b in zip(one, other, strict=True)]
    return float(np.mean(each[:attributes])), float(np.mean(each[attributes:]))


def main() -> None:
    """Release the join for people with several limits, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    rows, schema = joined(given.patients)
    codes, m = encode(rows.select(schema.names), schema), schema.n_attributes
    _, person, times = np.unique(rows[KEY].to_numpy(), return_inverse=True, return_counts=True)
    by_rows = shares(codes, schema, np.ones(rows.height))
    by_people = shares(codes, schema, 1 / times[person])
    apart = distances(by_rows, by_people, m)
    sys.stdout.write(
        f"{rows.height:,} visits of {times.size:,} patients, {m} attributes, epsilon {given.epsilon:g}. Shares over "
        f"rows and over people differ by TV1 {apart[0]:.4f}, TV2 {apart[1]:.4f}.\n"
        f"{'':<26}{'over rows':^18}{'over people':^18}\n{'':<26}{'TV1':>9}{'TV2':>9}{'TV1':>9}{'TV2':>9}\n"
    )

    def show(name: str, found: list[NDArray[np.float64]]) -> None:
        figures = [*distances(found, by_rows, m), *distances(found, by_people, m)]
        sys.stdout.write(f"{name:<26}{''.join(f'{figure:>9.4f}' for figure in figures)}\n")
        sys.stdout.flush()

    pairs = [np.outer(by_rows[i], by_rows[j]).ravel() for i in range(m) for j in range(i + 1, m)]
    show("independence", [*by_rows[:m], *pairs])
    ways: list[tuple[str, Person | None]] = [("count = people", Person(column=KEY, count="people"))]
    ways += [(f"count = rows, L = {most}", Person(column=KEY, count="rows", rows_per_person=most)) for most in LIMITS]
    for name, unit in [*ways, ("rows unprotected", None)]:
        model = fit(rows, replace(schema, person=unit), epsilon=given.epsilon)
        drawn = encode(model.sample(rows.height, seed=1).select(schema.names), schema)
        show(name, shares(drawn, schema, np.ones(rows.height)))


if __name__ == "__main__":
    main()
