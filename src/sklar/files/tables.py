"""Noisy tables as a Parquet file, one row per cell: ours for others, and theirs for us.

    stage        whole number   1, 2, ...: measurements one after the other
    attribute    text           null for the noisy number of rows, where that is not public
    level        text           a level of it, by its name in the schema
    attribute_2  text           null in a one-way table
    level_2      text
    value        number         the noisy count
    scale        number         of its noise: sigma of a Gaussian, b of a Laplace; the same for all cells of a table

Where parities of bits were measured in place of tables, a one-way row counts the second level, and a two-way row, whose
levels are both "(odd)", the rows whose two bits differ. Parities of triples are in the model file alone. Such a file is
for others to read: to fit it again, take the model file, which holds the same counts.

The key `sklar.tables` of the file's metadata holds JSON: the format's name and version, the public number of rows (null
under add-remove, and where people have several rows), and what whoever measured the tables claims of their privacy. A
file can say anything, so what is read here is marked as claimed, also where Sklar wrote it. What a reader holds in
memory is bounded by the schema and by the largest row group of the file, not by its length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, Measured, measurements, unit_of
from sklar.budget.views import NoisyTables
from sklar.errors import ModelError
from sklar.files.stage import StageTables
from sklar.files.write import check_target, replacing, write_parquet
from sklar.kernel.theorems import Budget, Composition, Mechanism, Neighbors
from sklar.public.schema import Schema

FORMAT = "sklar-tables"
VERSION = 1
KEY = "sklar.tables"
ODD = "(odd)"
MAX_STAGES = 100

_TEXTS = ("attribute", "level", "attribute_2", "level_2")
_COLUMNS = pl.Schema(
    {"stage": pl.Int32(), **dict.fromkeys(_TEXTS, pl.String()), "value": pl.Int64(), "scale": pl.Float64()}
)
_BATCH_ROWS = 1 << 16
_MAX_METADATA = 1 << 20
# What a file may hold beside its cells.
_SLACK = 1 << 20
# Counts beyond this are not whole numbers in double precision, nor anybody's counts.
_MAX_VALUE = 2.0**53


def write_tables(measured: Measured, path: str | Path) -> None:
    """Write the noisy tables of all stages to a Parquet file, whole or not at all."""
    target = check_target(path, (".parquet",))
    certificate = measured.certificate
    document = {
        "format": FORMAT,
        "version": VERSION,
        "rows": measured.n_rows,
        "schema_sha256": certificate.schema_sha256,
        "certificate": {
            "by": certificate.claimed_by or f"sklar {certificate.versions.get('sklar', '')}".strip(),
            "epsilon": certificate.epsilon,
            "delta": certificate.delta,
            "neighbors": certificate.neighbors,
            "mechanism": certificate.mechanism,
            "composition": certificate.composition,
            **unit_of(measured.schema.person),
        },
    }
    stages = enumerate(measured.stages, start=1)
    frames = (frame for stage, tables in stages for frame in _frames(stage, tables, measured.schema))
    with replacing(target) as temporary:
        write_parquet(temporary, _COLUMNS, frames, {KEY: json.dumps(document, ensure_ascii=False)})


def _frames(stage: int, tables: NoisyTables, schema: Schema) -> Iterator[pl.DataFrame]:
    plan, cells = tables.plan, tables.cells
    block = cells.attribute_of_level
    names = pl.Series(schema.names, dtype=pl.String)
    levels = pl.Series([level for attribute in schema.attributes for level in attribute.levels], dtype=pl.String)

    def frame(
        first: NDArray[np.int64] | None,
        second: NDArray[np.int64] | None,
        values: NDArray[np.int64],
        scales: NDArray[np.float64],
    ) -> pl.DataFrame:
        sides = [
            pl.repeat(None, values.size, dtype=pl.String, eager=True) if at is None else texts.gather(of[at])
            for at in (first, second)
            for texts, of in ((names, block), (levels, np.arange(block.size)))
        ]
        columns = [np.full(values.size, stage, dtype=np.int32), *sides, values, scales]
        return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)), schema=_COLUMNS)

    if tables.total is not None:
        yield frame(None, None, np.array([tables.total]), np.array([plan.total]))
    if plan.parities:
        # Ones are counts of the second level; a parity of two bits is that of rows which have one of the two.
        ones = cells.offsets[:-1] + 1
        yield frame(ones, None, tables.one_way, plan.one_way)
        first, second = cells.pairs
        for begin in range(0, cells.n_pairs, _BATCH_ROWS):
            run = slice(begin, begin + _BATCH_ROWS)
            odd = frame(ones[first[run]], ones[second[run]], tables.pairs[run], plan.pairs[run])
            yield odd.with_columns(pl.lit(ODD).alias(name) for name in ("level", "level_2"))
        return
    if plan.one_way.size:
        yield frame(np.arange(block.size), None, tables.one_way, plan.one_way[block])
    if plan.pairs.size:
        # Whole tables at a time, of about as many cells as a batch has.
        starts = np.unique(np.searchsorted(cells.pair_offsets, np.arange(0, cells.n_cells, _BATCH_ROWS)))
        for begin, end in pairwise([*starts.tolist(), cells.n_pairs]):
            run, sizes = slice(cells.pair_offsets[begin], cells.pair_offsets[end]), cells.pair_sizes[begin:end]
            first, second = (np.repeat(side[begin:end], sizes) for side in cells.pairs)
            within = np.arange(run.start, run.stop) - np.repeat(cells.pair_offsets[begin:end], sizes)
            row, column = np.divmod(within, cells.sizes[second])
            yield frame(
                cells.offsets[first] + row,
                cells.offsets[second] + column,
                tables.pairs[run].astype(np.int64, copy=False),
                np.repeat(plan.pairs[begin:end], sizes),
            )


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
        claim = _claim(pl.read_parquet_metadata(path), measured)
        return _read(path, measured, claim)
    except ModelError as error:
        raise ModelError(f"'{path}' is not a usable file of noisy tables: {error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        # Whatever a damaged or hostile file makes polars raise, the user hears one thing.
        raise ModelError(
            f"'{path}' is not a Parquet file, or it is damaged ({type(error).__name__}). Get an intact copy."
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What the file's metadata says."""

    rows: int | None
    by: str
    epsilon: float
    delta: float
    neighbors: Neighbors
    mechanism: Mechanism
    composition: str


def _read(path: Path, schema: Schema, claim: _Claim) -> Measured:
    _check_types(pl.read_parquet_schema(path))
    # The path of one file, whatever stands in it, and not a pattern.
    cells = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    # A text that stands in a million cells may be held as a category.
    cells = cells.with_columns(pl.col(_TEXTS).cast(pl.String))
    stages = _check_size(path, cells, schema)
    public = claim.rows is not None
    parts = [StageTables(schema, stage, public_rows=public) for stage in range(1, stages + 1)]
    widest = len(_TEXTS) * _longest(schema)
    for frame in cells.collect_batches(chunk_size=_BATCH_ROWS):
        texts = frame.select(pl.col(_TEXTS).str.len_bytes().sum()).sum_horizontal().item()
        if texts > len(frame) * widest + _SLACK:
            raise ModelError("its columns are larger than its schema implies.")
        _scatter(frame, schema, parts)
    for part in parts:
        part.check_whole()
    if not any(part.has_one_way for part in parts):
        raise ModelError("it holds no one-way tables. Add the table of every attribute.")
    if schema.n_attributes > 1 and not any(part.has_pairs for part in parts):
        raise ModelError("it holds no two-way tables. Add the table of every pair of attributes.")
    blocks = tuple(block for part in parts for block in part.blocks())
    rows = None if schema.person is None else schema.person.rows_per_person
    budget = Budget(epsilon=1.0, neighbors=claim.neighbors, rows_per_person=rows)
    certificate = Certificate(
        neighbors=claim.neighbors,
        mechanism=claim.mechanism,
        composition=cast(Composition, claim.composition),
        epsilon=claim.epsilon,
        delta=claim.delta,
        public_rows=claim.rows,
        schema_sha256=schema.digest,
        measurements=measurements(blocks, budget),
        versions={},
        claimed_by=claim.by,
        rounded=any(part.rounded for part in parts),
        **unit_of(schema.person),
        read_from_rows=(schema.whole or schema).read_from_rows,
    )
    return Measured(schema=schema, blocks=blocks, certificate=certificate)


def _claim(metadata: Mapping[str, str], schema: Schema) -> _Claim:
    if KEY not in metadata or len(metadata[KEY]) > _MAX_METADATA:
        raise ModelError(f"its metadata has no key '{KEY}' with the certificate. See docs/tables.md.")
    try:
        document = json.loads(metadata[KEY])
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ModelError(f"its format must be '{FORMAT}', version {VERSION}, got {document['format']!r:.40}.")
        stated, rows, digest = document["certificate"], document["rows"], document.get("schema_sha256")
        by, epsilon, delta = stated["by"], stated["epsilon"], stated["delta"]
        neighbors, mechanism = stated["neighbors"], stated["mechanism"]
        composition = stated.get("composition", "not stated")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"its certificate is not readable ({type(error).__name__}: {error!s:.60}).") from None
    if digest is not None and digest != schema.digest:
        raise ModelError("it was written for another schema. Give the schema that its tables were measured by.")
    for name, value, known in (
        ("neighbors", neighbors, get_args(Neighbors)),
        ("mechanism", mechanism, get_args(Mechanism)),
    ):
        if value not in known:
            raise ModelError(f"its {name} must be one of {', '.join(known)}, got {value!r:.40}.")
    if not (_number(epsilon) and epsilon > 0 and _number(delta) and 0 <= delta < 1):
        raise ModelError(f"its certificate must state epsilon > 0 and 0 <= delta < 1, got {epsilon!r}, {delta!r:.40}.")
    texts = {"by": by, "composition": composition}
    odd = [key for key, value in texts.items() if not isinstance(value, str) or not 0 < len(value) <= 200]
    if odd:
        raise ModelError(f"its certificate's '{odd[0]}' must be a text of 1 to 200 characters.")
    unit = {key: stated[key] for key in ("count", "rows_per_person") if key in stated}
    if unit != unit_of(schema.person):
        raise ModelError("its certificate is for another unit than the schema's [table] names (docs/people.md).")
    public = neighbors == "replace-one" and (schema.person is None or schema.person.rows_per_person == 1)
    if public and (type(rows) is not int or not 1 <= rows < _MAX_VALUE):
        raise ModelError(f"under replace-one its number of rows must be stated and at least 1, got {rows!r:.40}.")
    if not public and rows is not None:
        what = "under add-remove" if neighbors == "add-remove" else "where people have several rows"
        raise ModelError(f"{what} the number of rows is not public. State rows as null, and measure it.")
    return _Claim(
        rows=rows,
        by=by,
        epsilon=float(epsilon),
        delta=float(delta),
        neighbors=neighbors,
        mechanism=mechanism,
        composition=composition,
    )


def _number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(cast(float, value))


def _check_types(found: Mapping[str, pl.DataType]) -> None:
    if sorted(found) != sorted(_COLUMNS):
        raise ModelError(f"its columns must be {', '.join(_COLUMNS)}, got {', '.join(found)!s:.200}.")
    for name, kind in found.items():
        if name in _TEXTS:
            fits = isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null)
        else:
            fits = kind.is_integer() or (name != "stage" and kind.is_float())
        if not fits:
            raise ModelError(
                f"its column '{name}' must hold {'texts' if name in _TEXTS else 'numbers'}, got {kind!s:.60}."
            )


def _longest(schema: Schema) -> int:
    """Bytes of the longest text that a cell may have."""
    texts = (*schema.names, *(level for attribute in schema.attributes for level in attribute.levels))
    return max(len(text.encode()) for text in texts)


def _check_size(path: Path, cells: pl.LazyFrame, schema: Schema) -> int:
    """The number of stages, when sizes are what the schema implies; nothing large is read for it."""
    rows = cells.select(pl.len()).collect().item()
    most = 1 + schema.n_levels + _pair_cells(schema)
    if rows > MAX_STAGES * most:
        raise ModelError(
            f"it has {rows:,} rows, more than {MAX_STAGES} stages of this schema's tables. Check the schema."
        )
    if path.stat().st_size > rows * (len(_TEXTS) * (_longest(schema) + 16) + 64) + _SLACK:
        raise ModelError("its columns are larger than its schema implies.")
    counts: dict[int, int] = {}
    for frame in cells.select("stage").collect_batches(chunk_size=_BATCH_ROWS):
        column = frame["stage"]
        if column.null_count():
            raise ModelError("a row has no stage. Number the stages from 1.")
        for stage, times in zip(*np.unique(column.to_numpy(), return_counts=True), strict=True):
            counts[int(stage)] = counts.get(int(stage), 0) + int(times)
        if len(counts) > MAX_STAGES:
            raise ModelError(f"it has more than {MAX_STAGES} stages.")
    if sorted(counts) != list(range(1, len(counts) + 1)) or not counts:
        raise ModelError(f"its stages must be numbered 1, 2, ..., got {sorted(counts)!s:.60}.")
    over = [stage for stage, times in counts.items() if times > most]
    if over:
        left_out = [] if schema.whole is None else list(schema.whole.determined)
        raise ModelError(
            f"stage {over[0]} has {counts[over[0]]:,} rows, and {schema.n_attributes} measured attributes have "
            f"{most:,} cells at most." + (f" Leave out '{left_out[0]}', which a rule determines." if left_out else "")
        )
    return len(counts)


def _pair_cells(schema: Schema) -> int:
    total = schema.n_levels
    return int((total**2 - (schema.sizes**2).sum()) // 2)


def _scatter(frame: pl.DataFrame, schema: Schema, parts: Sequence[StageTables]) -> None:
    """Put cells where they belong."""
    stages = frame["stage"].to_numpy()
    values, rounded = _values(frame["value"])
    scales = frame["scale"].cast(pl.Float64).fill_null(math.nan).to_numpy()
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ModelError("scales must be positive numbers. State the noise of every cell.")
    if (frame["level_2"] == ODD).any():
        raise ModelError("it holds parities of bits, which are read from a model file alone. Give the model file.")
    first = _levels(frame, "attribute", "level", schema)
    second = _levels(frame, "attribute_2", "level_2", schema)
    if ((first < 0) & (second >= 0)).any():
        raise ModelError("a cell has a second attribute and no first.")
    block = schema.cells.attribute_of_level
    if (block[first] == block[second])[(first >= 0) & (second >= 0)].any():
        raise ModelError("a two-way table must be about two different attributes.")
    swapped = (second >= 0) & (second < first)
    first, second = np.where(swapped, second, first), np.where(swapped, first, second)
    for stage in np.unique(stages):
        part, own = parts[stage - 1], stages == stage
        part.rounded |= bool(rounded[own].any())
        total, one, two = (
            np.nonzero(own & kind)[0] for kind in (first < 0, (first >= 0) & (second < 0), (first >= 0) & (second >= 0))
        )
        if total.size:
            part.add_total(values[total], scales[total])
        if one.size:
            part.add_one_way(first[one], values[one], scales[one])
        if two.size:
            part.add_pairs(first[two], second[two], values[two], scales[two])


def _values(column: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole counts, and which of them were rounded."""
    if column.null_count():
        raise ModelError("a cell has no value. Every cell of a table needs one, seen or not.")
    given = column.cast(pl.Float64).to_numpy()
    if not (np.abs(given) <= _MAX_VALUE).all():
        raise ModelError("values must be finite and at most 2**53 in size.")
    whole = np.rint(given)
    return whole.astype(np.int64), whole != given


def _levels(frame: pl.DataFrame, attribute: str, level: str, schema: Schema) -> NDArray[np.int64]:
    """Which of the d levels each row names, shape (rows,); -1 where both are null."""
    given = frame.select(pl.col(attribute).alias("name"), pl.col(level).alias("text"))
    if (given["name"].is_null() != given["text"].is_null()).any():
        raise ModelError(f"'{attribute}' and '{level}' must be given together, or both be null.")
    found = given.join(_known(schema), on=["name", "text"], how="left", maintain_order="left")
    unknown = found.filter(pl.col("at").is_null() & pl.col("name").is_not_null())
    if len(unknown):
        name, text, _ = unknown.row(0)
        _refuse(name, text, schema)
    return found["at"].fill_null(-1).to_numpy()


def _known(schema: Schema) -> pl.DataFrame:
    """Where each level of each attribute stands among all d."""
    named = [(attribute.name, level) for attribute in schema.attributes for level in attribute.levels]
    names, texts = zip(*named, strict=True)
    return pl.DataFrame({"name": names, "text": texts, "at": np.arange(len(named))})


def _refuse(name: str, text: str, schema: Schema) -> None:
    """Say why a cell's attribute and level are not the schema's."""
    left_out = {} if schema.whole is None else schema.whole.determined
    if name in left_out:
        raise ModelError(f"'{name}' is determined by '{left_out[name]}' and has no table. Leave its tables out.")
    if name not in schema.names:
        raise ModelError(f"the schema has no attribute '{name!s:.60}'. It has: {', '.join(schema.names)!s:.200}.")
    raise ModelError(f"attribute '{name}' has no level '{text!s:.60}'. Use the names that the schema gives.")
