"""Three-way tables on generated ones with true three-way structure: what a third stage gains, and what it costs pairs.

The same rows are released with it, and as a stream that can be read once, which has none. Six columns each:

- `function`: a column that two others determine, but for one row in ten;
- `sums`: two columns that add up others, with noise;
- `sequence`: each column follows from the two before it, more likely than not;
- `xor`: the sum of two columns modulo 4, which no pair shows;
- `independent`: nothing to find.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
import pyarrow as pa
from benchmarks.judge import three_way_errors, triples_of
from numpy.typing import NDArray

from experiments import record
from sklar.public.schema import Attribute, Schema
from sklar.release import fit
from sklar.rows.encode import encode

SIZES = (4, 5, 6, 10, 12, 4)


def made(name: str, rows: int, seed: int = 1) -> NDArray[np.int32]:
    """The codes of a generated table, shape (6, rows)."""
    generator = np.random.default_rng([seed, len(name)])
    codes = np.stack([generator.integers(0, size, rows) for size in SIZES])
    if name == "function":
        given = (codes[0] * 2 + codes[1] * codes[1]) % SIZES[2]
        codes[2] = np.where(generator.random(rows) < 0.9, given, codes[2])
        codes[3] = (codes[2] + codes[3] // 3) % SIZES[3]
    elif name == "sums":
        codes[3] = np.clip(codes[0] + codes[1] + generator.integers(0, 3, rows), 0, SIZES[3] - 1)
        codes[4] = np.clip(codes[2] + codes[1] + generator.integers(0, 4, rows), 0, SIZES[4] - 1)
    elif name == "sequence":
        for at in range(2, len(SIZES)):
            given = (codes[at - 1] + 2 * codes[at - 2] + codes[at - 1] * codes[at - 2]) % SIZES[at]
            codes[at] = np.where(generator.random(rows) < 0.6, given, codes[at])
    elif name == "xor":
        codes[5] = (codes[0] + codes[1] % 4) % 4
    return codes.astype(np.int32)


TABLES = ("function", "sums", "sequence", "xor", "independent")


def released(codes: NDArray[np.int32], epsilon: float, *, third: bool) -> dict[str, Any]:
    """Errors of one release, and how many three-way tables it measured."""
    schema = Schema(
        name="generated",
        attributes=tuple(
            Attribute(name=f"c{at}", kind="integer", edges=tuple(range(size + 1))) for at, size in enumerate(SIZES)
        ),
    )
    table = pl.DataFrame(dict(zip(schema.names, codes, strict=True)))
    arrow = table.to_arrow()
    once = pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches())
    model = fit(table if third else once, schema, epsilon=epsilon)
    drawn = encode(model.sample(seed=1), schema)
    tables = sum(each.tables for each in model.certificate.measurements if each.order == 3)
    pairs = [(i, j) for i in range(len(SIZES)) for j in range(i + 1, len(SIZES))]
    two = np.mean([_two_way_tv(codes, drawn, i, j) for i, j in pairs])
    three, _ = three_way_errors(codes, drawn, SIZES, triples_of(len(SIZES)))
    return {"tv2": float(two), "tv3": three, "tables": tables}


def _two_way_tv(real: NDArray[np.int32], drawn: NDArray[np.int32], i: int, j: int) -> float:
    size = SIZES[i] * SIZES[j]
    one, two = (np.bincount(codes[i] * SIZES[j] + codes[j], minlength=size) / codes.shape[1] for codes in (real, drawn))
    return 0.5 * float(np.abs(one - two).sum())


@click.command()
@record.options
@click.option("--rows", type=int, default=20_000, show_default=True)
@click.option("--draws", type=int, default=2, show_default=True, help="Fresh draws of noise.")
@click.option("--epsilons", default="1,4", show_default=True)
def main(data_folder: Path | None, out: Path, *, rows: int, draws: int, epsilons: str) -> None:
    """What a third stage gains on generated tables."""
    del data_folder
    results: dict[str, Any] = {}
    for name in TABLES:
        codes = made(name, rows)
        for epsilon in map(float, epsilons.split(",")):
            for third in (False, True):
                runs = [released(codes, epsilon, third=third) for _ in range(draws)]
                results[f"{name}, epsilon {epsilon:g}, {'three' if third else 'two'} stages"] = runs
                click.echo(f"{name} {epsilon:g} {third}: {runs}", err=True)
    head = ["table", "three-way tables", "TV2", "TV3"]
    lines = [
        [
            name,
            record.spread([run["tables"] for run in runs], 0),
            *(record.spread([run[key] for run in runs], 4) for key in ("tv2", "tv3")),
        ]
        for name, runs in results.items()
    ]
    words = (
        f"Generated tables of {rows:,} rows and six columns (4 to 12 levels), released with and without a third stage. "
        "Mean total variation of all two-way and three-way tables of the synthetic rows; means over the draws (and "
        "their range).\n\n"
    )
    document = {"header": record.header("triples", rows=rows), "results": results}
    record.write(
        out, "triples", document=document, markdown=f"# Three-way tables\n\n{words}{record.table(head, lines)}"
    )


if __name__ == "__main__":
    main()
