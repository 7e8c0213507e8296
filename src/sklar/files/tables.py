"""Noisy tables as a Parquet file, one row per cell: ours for others, and theirs for us (docs/tables.md).

Where parities of bits were measured in place of tables, a one-way row counts the second level, and a two-way row, whose
levels are both "(odd)", the rows whose two bits differ. Parities of triples are in the model file alone. Such a file is
for others to read: to fit it again, take the model file, which holds the same counts.

A file can say anything, so what is read here is marked as claimed, also where Sklar wrote it. What a reader holds in
memory is bounded by the schema and by the largest row group of the file, not by its length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from sklar.budget.certificate import Certificate, Measured, measurements, stage_numbers, unit_of, vouched
from sklar.errors import ModelError
from sklar.files.grammar import number, one_of, text
from sklar.files.write import check_target, replacing, write_parquet
from sklar.fitting.margins import table_runs
from sklar.kernel.queries import Block, Parities, Tables
from sklar.kernel.theorems import Budget, Mechanism, Neighbors
from sklar.public.schema import Schema

FORMAT, VERSION = "sklar-tables", 1
KEY = "sklar.tables"
ODD = "(odd)"
MAX_STAGES = 100

_TEXTS = ("attribute", "level", "attribute_2", "level_2")
_COLUMNS = pl.Schema(
    {"stage": pl.Int32(), **dict.fromkeys(_TEXTS, pl.String()), "value": pl.Int64(), "scale": pl.Float64()}
)
# What whoever measured the tables claims.
_CLAIM = {
    "by": text(200),
    "epsilon": number(0.0),
    "delta": number(0.0, 1.0),
    "neighbors": one_of(*get_args(Neighbors)),
    "mechanism": one_of(*get_args(Mechanism)),
    "composition": text(200),
}
_BATCH_ROWS = 1 << 16
_MAX_METADATA = 1 << 20
# What a file may hold beside its cells.
_SLACK = 1 << 20
# Counts beyond this are not whole numbers in double precision, nor anybody's counts.
_MAX_VALUE, _UNREAD = 2.0**53, np.int64(-(2**63))


def write_tables(measured: Measured, path: str | Path) -> None:
    """Write the noisy tables of all stages to a Parquet file, whole or not at all."""
    target = check_target(path, (".parquet",))
    certificate, schema = measured.certificate, measured.schema
    stated = {name: getattr(certificate, name) for name in _CLAIM if name != "by"}
    by = certificate.claimed_by or f"sklar {certificate.versions.get('sklar', '')}".strip()
    document = {
        "format": FORMAT,
        "version": VERSION,
        "rows": measured.n_rows,
        "schema_sha256": certificate.schema_sha256,
        "certificate": {"by": by, **stated, **unit_of(schema.person)},
    }
    names, levels = (pl.Series(side, dtype=pl.String) for side in zip(*_named(schema), strict=True))
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


def read_tables(path: str | Path, schema: Schema) -> Measured:
    """The noisy tables of a Parquet file, stage by stage, over the measured part of this schema.

    Every stage must hold all one-way tables or none, and all two-way tables or none, in full; together they must hold
    both. Values that are not whole are rounded, which is recorded.
    """
    schema.require_reviewed()
    path, measured = Path(path), schema.measured
    if not path.is_file():
        raise ModelError(f"tables file '{path}' does not exist. Check the path.")
    try:
        return _read(path, measured, _claim(pl.read_parquet_metadata(path), measured))
    except ModelError as error:
        raise ModelError(f"'{path}' is not a usable file of noisy tables: {error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        # Whatever a damaged or hostile file makes polars raise: report one clear error.
        raise ModelError(
            f"'{path}' is not a Parquet file, or it is damaged ({type(error).__name__}). Get an intact copy."
        ) from None


def _read(path: Path, schema: Schema, claim: Mapping[str, Any]) -> Measured:
    columns = pl.read_parquet_schema(path)
    if sorted(columns) != sorted(_COLUMNS):
        raise ModelError(f"its columns must be {', '.join(_COLUMNS)}, got {', '.join(columns)!s:.200}.")
    for name, kind in columns.items():
        what, fits = "numbers", kind.is_integer() or (name != "stage" and kind.is_float())
        if name in _TEXTS:
            what, fits = "texts", isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null)
        if not fits:
            raise ModelError(f"its column '{name}' must hold {what}, got {kind!s:.60}.")
    # The path of one file, whatever stands in it, and not a pattern. Texts may be held as categories.
    cells = pl.scan_parquet(path, glob=False, hive_partitioning=False).with_columns(pl.col(_TEXTS).cast(pl.String))
    longest = max(len(text.encode()) for text in (*schema.names, *(level for _, level in _named(schema))))
    _check_size(path, cells, schema, longest)
    tables: dict[tuple[int, int], _Filled] = {}
    rounded = False
    for frame in cells.collect_batches(chunk_size=_BATCH_ROWS):
        texts = frame.select(pl.col(_TEXTS).str.len_bytes().sum()).sum_horizontal().item()
        if texts > len(frame) * len(_TEXTS) * longest + _SLACK:
            raise ModelError("its columns are larger than its schema implies.")
        rounded |= _scatter(frame, schema, tables)
    orders = {order for _, order in tables}
    if 1 not in orders:
        raise ModelError("it holds no one-way tables. Add the table of every attribute.")
    if schema.n_attributes > 1 and 2 not in orders:
        raise ModelError("it holds no two-way tables. Add the table of every pair of attributes.")
    if claim["public_rows"] is not None and 0 in orders:
        raise ModelError("it holds a noisy number of rows, which is measured only where that is not public.")
    blocks = tuple(tables[each].block() for each in sorted(tables))
    person = schema.person
    rows = None if person is None else person.rows_per_person
    certificate = Certificate(
        **claim,
        schema_sha256=schema.digest,
        measurements=measurements(blocks, Budget(epsilon=1.0, neighbors=claim["neighbors"], rows_per_person=rows)),
        rounded=rounded,
        **unit_of(person),
        **vouched(schema.whole or schema),
    )
    return Measured(schema=schema, blocks=blocks, certificate=certificate)


def _claim(metadata: Mapping[str, str], schema: Schema) -> dict[str, Any]:
    """What the file's metadata says, as a certificate states it."""
    if KEY not in metadata or len(metadata[KEY]) > _MAX_METADATA:
        raise ModelError(f"its metadata has no key '{KEY}' with the certificate. See docs/tables.md.")
    try:
        document = json.loads(metadata[KEY])
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ModelError(f"its format must be '{FORMAT}', version {VERSION}, got {document['format']!r:.40}.")
        given, rows, digest = document["certificate"], document["rows"], document.get("schema_sha256")
        stated = {key: given[key] for key in _CLAIM if key != "composition"}
        stated["composition"] = given.get("composition", "not stated")
        unit = {key: given[key] for key in ("count", "rows_per_person") if key in given}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"its certificate is not readable ({type(error).__name__}: {error!s:.60}).") from None
    if digest is not None and digest != schema.digest:
        raise ModelError("it was written for another schema. Give the schema that its tables were measured by.")
    for key, shape in _CLAIM.items():
        shape(stated[key], f"certificate.{key}")
    if not (stated["epsilon"] > 0 and stated["delta"] < 1):
        raise ModelError("its certificate must state epsilon > 0 and 0 <= delta < 1.")
    if unit != unit_of(schema.person):
        raise ModelError("its certificate is for another unit than the schema's [table] names (docs/people.md).")
    public = stated["neighbors"] == "replace-one" and (schema.person is None or schema.person.rows_per_person == 1)
    if public and (type(rows) is not int or not 1 <= rows < _MAX_VALUE):
        raise ModelError(f"under replace-one its number of rows must be stated and at least 1, got {rows!r:.40}.")
    if not public and rows is not None:
        what = "under add-remove" if stated["neighbors"] == "add-remove" else "where people have several rows"
        raise ModelError(f"{what} the number of rows is not public. State rows as null, and measure it.")
    stated |= {"public_rows": rows, "claimed_by": stated.pop("by")}
    return stated | {key: float(stated[key]) for key in ("epsilon", "delta")}


def _check_size(path: Path, cells: pl.LazyFrame, schema: Schema, longest: int) -> None:
    """Refuse stages and sizes that are not what the schema implies; nothing large is read for it."""
    rows = cells.select(pl.len()).collect().item()
    most = 1 + schema.n_levels + schema.cells.n_cells
    if rows > MAX_STAGES * most:
        raise ModelError(
            f"it has {rows:,} rows, more than {MAX_STAGES} stages of this schema's tables. Check the schema."
        )
    if path.stat().st_size > rows * (len(_TEXTS) * (longest + 16) + 64) + _SLACK:
        raise ModelError("its columns are larger than its schema implies.")
    counts: dict[int, int] = dict(cells.group_by("stage").len().collect(engine="streaming").iter_rows())
    if None in counts:
        raise ModelError("a row has no stage. Number the stages from 1.")
    if len(counts) > MAX_STAGES:
        raise ModelError(f"it has more than {MAX_STAGES} stages.")
    if sorted(counts) != list(range(1, len(counts) + 1)) or not counts:
        raise ModelError(f"its stages must be numbered 1, 2, ..., got {sorted(counts)!s:.60}.")
    over = [stage for stage in sorted(counts) if counts[stage] > most]
    if over:
        left_out = [] if schema.whole is None else list(schema.whole.determined)
        raise ModelError(
            f"stage {over[0]} has {counts[over[0]]:,} rows, and {schema.n_attributes} measured attributes have "
            f"{most:,} cells at most." + (f" Leave out '{left_out[0]}', which a rule determines." if left_out else "")
        )


class _Filled:
    """The tables of one order in one stage while their cells are read, in any order: each once, with one scale."""

    def __init__(self, schema: Schema, stage: int, order: int) -> None:
        self._names, self._stage, self._query = schema.names, stage, Tables(cells=schema.cells, order=order)
        self._offsets = self._query.offsets
        self._values = np.full(self._query.n_cells, _UNREAD)
        self._scales = np.full(self._query.sizes.size, np.nan)

    def add(self, at: NDArray[np.int64], values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """Cells at these places of the flat vector."""
        if (self._values[at] != _UNREAD).any() or np.unique(at).size < at.size:
            raise ModelError(f"stage {self._stage} holds a cell twice. Give every cell once.")
        self._values[at] = values
        table = np.searchsorted(self._offsets, at, side="right") - 1
        known = self._scales[table]
        self._scales[table] = np.where(np.isnan(known), scales, known)
        wrong = table[self._scales[table] != scales]
        if wrong.size:
            raise ModelError(f"stage {self._stage}: all cells of {self._table(wrong[0])} must have one scale.")

    def _table(self, number: int) -> str:
        names = [f"'{self._names[each]}'" for each in self._query.members[number]]
        return f"the table of {' and '.join(names)}"

    def block(self) -> Block:
        """What was read; refused where cells are missing."""
        missing = self._values == _UNREAD
        if missing.any():
            table = int(np.searchsorted(self._offsets, np.argmax(missing), side="right")) - 1
            what = "is missing" if np.isnan(self._scales[table]) else "lacks cells"
            raise ModelError(
                f"stage {self._stage}: {self._table(table)} {what}. A stage must hold all "
                f"{('', 'one', 'two')[self._query.order]}-way tables of the schema in full, or none."
            )
        return Block(query=self._query, scales=self._scales, values=self._values)


def _scatter(frame: pl.DataFrame, schema: Schema, tables: dict[tuple[int, int], _Filled]) -> bool:
    """Put cells where they belong; whether values were rounded."""
    if frame["value"].null_count():
        raise ModelError("a cell has no value. Every cell of a table needs one, seen or not.")
    given, stages = frame["value"].cast(pl.Float64).to_numpy(), frame["stage"].to_numpy()
    if not (np.abs(given) <= _MAX_VALUE).all():
        raise ModelError("values must be finite and at most 2**53 in size.")
    values = np.rint(given)
    scales = frame["scale"].cast(pl.Float64).fill_null(math.nan).to_numpy()
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ModelError("scales must be positive numbers. State the noise of every cell.")
    if (frame["level_2"] == ODD).any():
        raise ModelError("it holds parities of bits, which are read from a model file alone. Give the model file.")
    first, second = (_levels(frame, *side, schema) for side in (_TEXTS[:2], _TEXTS[2:]))
    if ((first < 0) & (second >= 0)).any():
        raise ModelError("a cell has a second attribute and no first.")
    cells, block = schema.cells, schema.cells.attribute_of_level
    if (block[first] == block[second])[second >= 0].any():
        raise ModelError("a two-way table must be about two different attributes.")
    orders = (first >= 0).astype(np.int64) + (second >= 0)
    low, high = np.minimum(first, second), np.maximum(first, second)
    for stage, order in np.unique(np.stack([stages, orders]), axis=1).T.tolist():
        own = np.nonzero((stages == stage) & (orders == order))[0]
        if (stage, order) not in tables:
            tables[stage, order] = _Filled(schema, stage, order)
        # Of one attribute, the other is -1; the number of rows is one cell.
        at = cells.places_of(low[own], high[own]) if order == 2 else np.maximum(high[own], 0)
        tables[stage, order].add(at, values[own].astype(np.int64), scales[own])
    return bool((values != given).any())


def _levels(frame: pl.DataFrame, attribute: str, level: str, schema: Schema) -> NDArray[np.int64]:
    """Which of the d levels each row names, shape (rows,); -1 where both are null."""
    given = frame.select(pl.col(attribute).alias("name"), pl.col(level).alias("text"))
    if (given["name"].is_null() != given["text"].is_null()).any():
        raise ModelError(f"'{attribute}' and '{level}' must be given together, or both be null.")
    names, texts = zip(*_named(schema), strict=True)
    known = pl.DataFrame({"name": names, "text": texts, "at": np.arange(len(names))})
    found = given.join(known, on=["name", "text"], how="left", maintain_order="left")
    unknown = found.filter(pl.col("at").is_null() & pl.col("name").is_not_null())
    if not len(unknown):
        return found["at"].fill_null(-1).to_numpy()
    name, value, _ = unknown.row(0)
    left_out = {} if schema.whole is None else schema.whole.determined
    if name in left_out:
        raise ModelError(f"'{name}' is determined by '{left_out[name]}' and has no table. Leave its tables out.")
    if name not in schema.names:
        raise ModelError(f"the schema has no attribute '{name!s:.60}'. It has: {', '.join(schema.names)!s:.200}.")
    raise ModelError(f"attribute '{name}' has no level '{value!s:.60}'. Use the names that the schema gives.")


def _named(schema: Schema) -> list[tuple[str, str]]:
    """Attribute and level of each of the d levels."""
    return [(attribute.name, level) for attribute in schema.attributes for level in attribute.levels]
