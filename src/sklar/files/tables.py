"""Noisy tables as a Parquet file, one row per cell, for others to read (docs/tables.md).

Where parities of bits were measured in place of tables, a one-way row counts the second level, and a two-way row, whose
levels are both "(odd)", the rows whose two bits differ. Parities of triples are in the model file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from sklar.budget.certificate import Measured, stage_numbers, unit_of
from sklar.files.write import check_target, replacing, write_parquet
from sklar.fitting.margins import table_runs
from sklar.kernel.queries import Block, Parities, Tables

FORMAT, VERSION = "sklar-tables", 1
KEY = "sklar.tables"
ODD = "(odd)"

_TEXTS = ("attribute", "level", "attribute_2", "level_2")
_STATED = ("epsilon", "delta", "neighbors", "mechanism", "composition")
_COLUMNS = pl.Schema(
    {"stage": pl.Int32(), **dict.fromkeys(_TEXTS, pl.String()), "value": pl.Int64(), "scale": pl.Float64()}
)


def write_tables(measured: Measured, path: str | Path) -> None:
    """Write the noisy tables of all stages to a Parquet file, whole or not at all.

    Of linked tables it is the joint one, in parts of a person: the file says how many `tokens` are one.
    """
    target = check_target(path, (".parquet",))
    certificate, schema = measured.certificate, measured.schema
    stated = {name: getattr(certificate, name) for name in _STATED}
    by = f"sklar {certificate.versions.get('sklar', '')}".strip()
    document = {
        "format": FORMAT,
        "version": VERSION,
        "rows": measured.n_rows,
        "schema_sha256": certificate.schema_sha256,
        "certificate": {"by": by, **stated, **unit_of(schema.person)},
        **({} if certificate.tokens is None else {"tokens": certificate.tokens}),
    }
    named = [(attribute.name, level) for attribute in schema.attributes for level in attribute.levels]
    names, levels = (pl.Series(side, dtype=pl.String) for side in zip(*named, strict=True))
    stages = zip(stage_numbers(measured.blocks), measured.blocks, strict=True)
    frames = (frame for stage, block in stages if stage for frame in _frames(stage, block, names, levels))
    with replacing(target) as temporary:
        write_parquet(temporary, _COLUMNS, frames, {KEY: json.dumps(document, ensure_ascii=False)})


def _frames(stage: int, block: Block, names: pl.Series, levels: pl.Series) -> Iterator[pl.DataFrame]:
    """The cells of a block in batches; none of chosen tables, distances and parities of triples.

    `names` and `levels` are those of the attribute and of each of the d levels.
    """
    query, parities = block.query, isinstance(block.query, Parities)
    parts: list[tuple[Tables, NDArray[Any], ArrayLike]] = []
    if isinstance(query, Parities):
        parts += zip(query.tables[:2], block.by_scale(), block.scales, strict=False)
    elif isinstance(query, Tables) and query.sets is None and query.coarse is None and query.order <= 2:
        parts += [(query, block.values, block.scales)]
    for tables, values, scales in parts:
        # A parity is one cell of a table: the second level, or the rows that have one of two.
        cells, members, sizes = tables.cells, tables.members, tables.sizes**0 if parities else tables.sizes
        offsets, scales = np.concatenate([[0], np.cumsum(sizes)]), np.broadcast_to(scales, sizes.shape)
        for begin, end in table_runs(offsets):
            own, run = sizes[begin:end], slice(offsets[begin], offsets[end])
            texts: list[pl.Series | str] = []
            within = np.arange(run.start, run.stop) - np.repeat(offsets[begin:end], own)
            for attribute in (np.repeat(side, own) for side in members[begin:end].T[::-1]):
                within, level = np.divmod(within, cells.sizes[attribute])
                at = cells.offsets[attribute] + (1 if parities else level)
                texts = [names.gather(at), ODD if parities and tables.order > 1 else levels.gather(at), *texts]
            columns = {"stage": stage, "value": values[run], "scale": np.repeat(scales[begin:end], own)}
            yield pl.DataFrame(columns | dict(zip_longest(_TEXTS, texts)), schema=_COLUMNS)
