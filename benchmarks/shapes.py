"""The inputs whose release is timed: the paper's five shapes, and cuts of them for the growth in m and d."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.tables import FOLDER, SEED
from sklar.files.write import write_frames, write_text
from sklar.generate import generate, schema_toml
from sklar.public.schema import Schema

TITLES = {"adult": "Adult", "hospital": "Hospital", "dss": "DSS-like", "syn1": "Syn 1", "syn2": "Syn 2"}
SHAPES = tuple(TITLES)
_REAL = ("adult", "hospital")

# The generated table that stands in for Adult has another number of rows by default.
_ADULT_ROWS = 32_561


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
        """Its name in tables, which says that rows are generated where real ones are expected."""
        expected = "read" if self.shape in _REAL else "generated"
        title = TITLES.get(self.shape, self.shape)
        return title if self.origin == expected else f"{title} ({self.origin})"


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

    Adult and Hospital are read from `folder` if it holds them; everything else is generated. A binary shape can be cut
    to `attributes` attributes of 2^packed levels, each made of `packed` columns.
    """
    name = "census" if shape == "adult" else shape
    if shape in _REAL and (folder / f"{shape}.csv").is_file():
        origin, schema = "read", Schema.load(folder / f"{shape}.toml")
        columns, frames = _read(folder / f"{shape}.csv", schema, rows)
    else:
        origin, schema = "generated", Schema.from_toml(schema_toml(name))
        columns, frames = generate(name, rows=rows or (_ADULT_ROWS if shape == "adult" else None), seed=SEED)
    stem = f"{shape}.{rows or 'all'}"
    if attributes is not None:
        stem += f".{attributes}x{packed}"
        names = schema.names[: attributes * packed]
        schema = _cut(schema, attributes, packed)
        columns, frames = _packed(frames, names, schema, packed)
    path, described = work / f"{stem}.parquet", work / f"{stem}.toml"
    # The schema is written last: where it exists, the rows are complete.
    if not (path.is_file() and described.is_file()):
        write_frames(path, columns, frames, None)
        write_text(described, schema.to_toml())
    whole = pl.scan_parquet(path).select(pl.len()).collect().item()
    return Input(shape=shape, rows=whole, schema=schema, path=path, schema_path=described, origin=origin)


def _read(path: Path, schema: Schema, rows: int | None) -> tuple[pl.Schema, Iterator[pl.DataFrame]]:
    # Codes that look like numbers stay text, as the schema lists them.
    types = {attribute.name: pl.String for attribute in schema.attributes if attribute.kind == "categorical"}
    frame = pl.read_csv(
        path, schema_overrides=types, n_rows=rows, infer_schema_length=None, empty_string_is_null=False
    ).select(schema.names)
    return frame.schema, iter([frame])


def _cut(schema: Schema, attributes: int, packed: int) -> Schema:
    if packed == 1:
        return Schema(name=schema.name, attributes=schema.attributes[:attributes])
    described = {
        f"p{index:03d}": {"type": "categorical", "values": list(range(1 << packed))} for index in range(attributes)
    }
    return Schema.from_dict({"table": {"name": schema.name}, "attributes": described})


def _packed(
    frames: Iterator[pl.DataFrame], names: tuple[str, ...], schema: Schema, packed: int
) -> tuple[pl.Schema, Iterator[pl.DataFrame]]:
    if packed == 1:
        return pl.Schema(dict.fromkeys(names, pl.Boolean())), (frame.select(names) for frame in frames)
    codes = [
        pl.sum_horizontal(
            pl.col(name).cast(pl.Int16) * (1 << place)
            for place, name in enumerate(names[index * packed : (index + 1) * packed])
        )
        .cast(pl.Int16)
        .alias(code)
        for index, code in enumerate(schema.names)
    ]
    return pl.Schema(dict.fromkeys(schema.names, pl.Int16())), (frame.select(codes) for frame in frames)
