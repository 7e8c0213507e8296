"""The inputs whose release is timed: the paper's five shapes, and cuts of them for the growth in m and d."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.tables import FOLDER, SEED
from sklar.files.write import replacing, write_text
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema

TITLES = {"adult": "Adult", "hospital": "Hospital", "dss": "DSS-like", "syn1": "Syn 1", "syn2": "Syn 2"}
SHAPES = tuple(TITLES)
_REAL = ("adult", "hospital")

# Adult's rows; the generated table that stands in for it has another default.
_ADULT_ROWS = 32_561
_ROW_GROUP = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A Parquet file and its schema's file, and whether its rows are real or generated."""

    shape: str
    rows: int
    schema: Schema
    path: Path
    schema_path: Path
    origin: str

    @property
    def title(self) -> str:
        """What it is called in tables; that rows are generated is said where real ones are expected."""
        expected = "read" if self.shape in _REAL else "generated"
        return TITLES[self.shape] if self.origin == expected else f"{TITLES[self.shape]} ({self.origin})"


def prepare(
    shape: str,
    *,
    work: Path,
    rows: int | None = None,
    attributes: int | None = None,
    packed: int = 1,
    folder: Path = FOLDER,
) -> Input:
    """The input, made once and kept in `work`.

    Adult and Hospital are read from `folder` where they are there; everything else is generated. Of binary shapes the
    first `attributes` columns can be taken, or as many attributes of 2^packed levels, each made of `packed` columns.
    """
    name = "census" if shape == "adult" else shape
    if shape in _REAL and (folder / f"{shape}.csv").is_file():
        origin, schema = "read", Schema.load(folder / f"{shape}.toml")
        columns, batches = _read(folder / f"{shape}.csv", schema, rows)
    else:
        origin, schema = "generated", Schema.from_toml(schema_toml(name))
        columns, batches = generate(name, rows=rows or (_ADULT_ROWS if shape == "adult" else None), seed=SEED)
    stem = f"{shape}.{rows or 'all'}"
    if attributes is not None:
        stem += f".{attributes}x{packed}"
        names = schema.names[: attributes * packed]
        schema = _cut(schema, attributes, packed)
        columns, batches = _packed(batches, names, schema, packed)
    path, described = work / f"{stem}.parquet", work / f"{stem}.toml"
    # The schema last: where it is, the rows are whole.
    if not (path.is_file() and described.is_file()):
        _write(path, columns, batches)
        write_text(described, schema.to_toml())
    whole = pq.read_metadata(path).num_rows
    return Input(shape=shape, rows=whole, schema=schema, path=path, schema_path=described, origin=origin)


def _read(path: Path, schema: Schema, rows: int | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    # Codes that look like numbers stay text, as the schema lists them.
    types = {attribute.name: pa.string() for attribute in schema.attributes if attribute.kind == "categorical"}
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(schema.names))
    table = pyarrow.csv.read_csv(path, convert_options=options).slice(0, rows)
    return table.schema, iter(table.to_batches())


def _cut(schema: Schema, attributes: int, packed: int) -> Schema:
    if packed == 1:
        return Schema(name=schema.name, attributes=schema.attributes[:attributes])
    described = {
        f"p{index:03d}": {"type": "categorical", "values": list(range(1 << packed))} for index in range(attributes)
    }
    return Schema.from_dict({"table": {"name": schema.name}, "attributes": described})


def _packed(
    batches: Iterator[pa.RecordBatch], names: tuple[str, ...], schema: Schema, packed: int
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if packed == 1:
        columns = pa.schema([(name, pa.bool_()) for name in names])
        return columns, (batch.select(list(names)) for batch in batches)
    columns = pa.schema([(name, pa.int16()) for name in schema.names])

    def code(batch: pa.RecordBatch, index: int) -> pa.Array:
        bits = [
            batch.column(name).to_numpy(zero_copy_only=False) for name in names[index * packed : (index + 1) * packed]
        ]
        return pa.array(sum(bit.astype(np.int16) << place for place, bit in enumerate(bits)), pa.int16())

    return columns, (
        pa.RecordBatch.from_arrays([code(batch, index) for index in range(len(columns))], schema=columns)
        for batch in batches
    )


def _write(path: Path, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with replacing(path) as temporary, pq.ParquetWriter(temporary, columns) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting, columns))
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, columns))
