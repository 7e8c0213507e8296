"""Noisy tables as a Parquet file, one row per cell: ours for others, and theirs for us.

    stage        whole number   1, 2, ...: measurements one after the other
    attribute    text           null for the noisy number of rows (add-remove only)
    level        text           a level of it, by its name in the schema
    attribute_2  text           null in a one-way table
    level_2      text
    value        number         the noisy count
    scale        number         of its noise: sigma of a Gaussian, b of a Laplace; the same for all cells of a table

The key `sklar.tables` of the file's metadata holds JSON: the format's name and version, the public number of rows (null
under add-remove), and what whoever measured the tables claims of their privacy. A file can say anything, so what is
read here is marked as claimed, also where Sklar wrote it. What a reader holds in memory is bounded by the schema, not
by the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sklar.budget.certificate import Certificate, NoisyTables, block_of_level, measurements
from sklar.budget.plan import Plan
from sklar.errors import ModelError
from sklar.files.write import check_target, replacing
from sklar.kernel.theorems import Composition, Mechanism, Neighbors
from sklar.public.schema import Schema

FORMAT = "sklar-tables"
VERSION = 1
KEY = b"sklar.tables"
MAX_STAGES = 100

_TEXTS = ("attribute", "level", "attribute_2", "level_2")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_COLUMNS = pa.schema(
    [("stage", pa.int32()), *((name, _TEXT) for name in _TEXTS), ("value", pa.int64()), ("scale", pa.float64())]
)
_BATCH_ROWS = 1 << 16
_MAX_METADATA = 1 << 20
# Counts beyond this are not whole numbers in double precision, nor anybody's counts.
_MAX_VALUE = 2.0**53


def write_tables(measured: Sequence[NoisyTables], path: str | Path) -> None:
    """Write the noisy tables of all stages to a Parquet file, whole or not at all."""
    target = check_target(path, (".parquet",))
    certificate = measured[-1].certificate
    document = {
        "format": FORMAT,
        "version": VERSION,
        "rows": measured[0].n_rows,
        "schema_sha256": certificate.schema_sha256,
        "certificate": {
            "by": certificate.claimed_by or f"sklar {certificate.versions.get('sklar', '')}".strip(),
            "epsilon": certificate.spent_epsilon,
            "delta": certificate.delta,
            "neighbors": certificate.neighbors,
            "mechanism": certificate.mechanism,
            "composition": certificate.composition,
        },
    }
    columns = _COLUMNS.with_metadata({KEY: json.dumps(document, ensure_ascii=False).encode()})
    with (
        replacing(target) as temporary,
        pq.ParquetWriter(temporary, columns, compression="zstd") as writer,
    ):
        for stage, tables in enumerate(measured, start=1):
            for batch in _batches(stage, tables, columns):
                writer.write_batch(batch)


def _batches(stage: int, tables: NoisyTables, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    schema, plan = tables.schema, tables.plan
    m, block = schema.n_attributes, block_of_level(schema)
    names = pa.array(schema.names, type=pa.string())
    levels, level_of = np.unique(
        np.array([level for attribute in schema.attributes for level in attribute.levels], dtype=object),
        return_inverse=True,
    )
    texts = pa.array(levels.tolist(), type=pa.string())

    def text(indices: NDArray[np.int64] | None, dictionary: pa.Array, rows: int) -> pa.Array:
        at = pa.nulls(rows, pa.int32()) if indices is None else pa.array(indices, type=pa.int32())
        return pa.DictionaryArray.from_arrays(at, dictionary)

    def batch(
        first: NDArray[np.int64] | None,
        second: NDArray[np.int64] | None,
        values: NDArray[np.int64],
        scales: NDArray[np.float64],
    ) -> pa.RecordBatch:
        sides = [
            text(None if at is None else of[at], dictionary, values.size)
            for at in (first, second)
            for of, dictionary in ((block, names), (level_of, texts))
        ]
        stages = pa.array(np.full(values.size, stage), type=pa.int32())
        return pa.record_batch([stages, *sides, pa.array(values), pa.array(scales)], schema=columns)

    if tables.total is not None:
        yield batch(None, None, np.array([tables.total]), np.array([plan.total]))
    if plan.one_way.size:
        yield batch(np.arange(block.size), None, tables.one_way, plan.one_way[block])
    if plan.pairs.size:
        scales, step = plan.pair_scales(m), max(_BATCH_ROWS // block.size, 1)
        for start in range(0, block.size, step):
            first, second = np.nonzero(block[start : start + step, None] < block[None, :])
            first += start
            if first.size:
                yield batch(first, second, tables.pairs[first, second], scales[block[first], block[second]])


def read_tables(path: str | Path, schema: Schema) -> tuple[NoisyTables, ...]:
    """The noisy tables of a Parquet file, stage by stage, over the measured part of this schema.

    Every stage must hold all one-way tables or none, and all two-way tables or none, in full; together they must hold
    both. Values that are not whole are rounded, which is recorded.
    """
    schema.require_reviewed()
    path, measured = Path(path), schema.measured
    if not path.is_file():
        raise ModelError(f"tables file '{path}' does not exist. Check the path.")
    try:
        with pq.ParquetFile(path) as file:
            claim = _claim(file.metadata.metadata or {}, measured)
            _check_names(file.schema_arrow.names)
        # Texts as dictionaries: a name that stands in a million cells is held once.
        with pq.ParquetFile(path, read_dictionary=list(_TEXTS)) as file:
            return _read(file, measured, claim)
    except ModelError as error:
        raise ModelError(f"'{path}' is not a usable file of noisy tables: {error}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        # Whatever a damaged or hostile file makes Arrow raise, the user hears one thing.
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


def _check_names(names: Sequence[str]) -> None:
    if sorted(names) != sorted(_COLUMNS.names):
        raise ModelError(f"its columns must be {', '.join(_COLUMNS.names)}, got {', '.join(names)!s:.200}.")


def _read(file: pq.ParquetFile, schema: Schema, claim: _Claim) -> tuple[NoisyTables, ...]:
    parts = [_Part(schema, stage, claim) for stage in range(1, _check_size(file, schema) + 1)]
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        _scatter(batch, schema, parts)
    for part in parts:
        part.check_whole()
    if not any(part.has_one_way for part in parts):
        raise ModelError("it holds no one-way tables. Add the table of every attribute.")
    if schema.n_attributes > 1 and not any(part.has_pairs for part in parts):
        raise ModelError("it holds no two-way tables. Add the table of every pair of attributes.")
    plans = [part.plan() for part in parts]
    shifts = 2 if claim.neighbors == "replace-one" else 1
    certificate = Certificate(
        neighbors=claim.neighbors,
        mechanism=claim.mechanism,
        composition=cast(Composition, claim.composition),
        epsilon=claim.epsilon,
        delta=claim.delta,
        spent_epsilon=claim.epsilon,
        public_rows=claim.rows,
        schema_sha256=schema.digest,
        measurements=measurements(plans, shifts),
        versions={},
        claimed_by=claim.by,
        rounded=any(part.rounded for part in parts),
    )
    return tuple(
        NoisyTables(
            schema=schema,
            n_rows=claim.rows,
            total=part.total,
            one_way=part.one_way if part.has_one_way else part.one_way[:0],
            pairs=part.pairs if part.has_pairs else np.zeros((0, 0), dtype=np.int64),
            plan=plan,
            certificate=certificate,
        )
        for part, plan in zip(parts, plans, strict=True)
    )


def _claim(metadata: Mapping[bytes, bytes], schema: Schema) -> _Claim:
    if KEY not in metadata or len(metadata[KEY]) > _MAX_METADATA:
        raise ModelError(f"its metadata has no key '{KEY.decode()}' with the certificate. See docs/tables.md.")
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
    public = neighbors == "replace-one"
    if public and (type(rows) is not int or not 1 <= rows < _MAX_VALUE):
        raise ModelError(f"under replace-one its number of rows must be stated and at least 1, got {rows!r:.40}.")
    if not public and rows is not None:
        raise ModelError("under add-remove the number of rows is not public. State rows as null, and measure it.")
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


def _check_size(file: pq.ParquetFile, schema: Schema) -> int:
    """The number of stages, when types and sizes are what the schema implies; nothing large is read for it."""
    found = file.schema_arrow
    for name in _COLUMNS.names:
        kind = found.field(name).type
        texts = pa.types.is_dictionary(kind) and (
            pa.types.is_string(kind.value_type) or pa.types.is_null(kind.value_type)
        )
        fits = {
            "stage": pa.types.is_integer(kind),
            "value": pa.types.is_integer(kind) or pa.types.is_floating(kind),
            "scale": pa.types.is_integer(kind) or pa.types.is_floating(kind),
        }.get(name, texts or pa.types.is_null(kind))
        if not fits:
            raise ModelError(
                f"its column '{name}' must hold {'texts' if name in _TEXTS else 'numbers'}, got {kind!s:.60}."
            )
    m, rows = schema.n_attributes, file.metadata.num_rows
    cells = {"one_way": schema.n_levels, "pairs": _pair_cells(schema)}
    if rows > MAX_STAGES * (1 + sum(cells.values())):
        raise ModelError(
            f"it has {rows:,} rows, more than {MAX_STAGES} stages of this schema's tables. Check the schema."
        )
    longest = max(len(text.encode()) for text in (*schema.names, *(x for a in schema.attributes for x in a.levels)))
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > rows * (4 * (longest + 16) + 64) + (len(groups) + 1) * (
        1 << 20
    ):
        raise ModelError("its columns are larger than its schema implies.")
    counts: dict[int, int] = {}
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=["stage"]):
        column = batch.column(0)
        if column.null_count:
            raise ModelError("a row has no stage. Number the stages from 1.")
        for stage, times in zip(*np.unique(np.asarray(column), return_counts=True), strict=True):
            counts[int(stage)] = counts.get(int(stage), 0) + int(times)
        if len(counts) > MAX_STAGES:
            raise ModelError(f"it has more than {MAX_STAGES} stages.")
    if sorted(counts) != list(range(1, len(counts) + 1)) or not counts:
        raise ModelError(f"its stages must be numbered 1, 2, ..., got {sorted(counts)!s:.60}.")
    most = 1 + sum(cells.values())
    over = [stage for stage, times in counts.items() if times > most]
    if over:
        left_out = [] if schema.whole is None else list(schema.whole.determined)
        raise ModelError(
            f"stage {over[0]} has {counts[over[0]]:,} rows, and {m} measured attributes have {most:,} cells at most."
            + (f" Leave out '{left_out[0]}', which a rule determines." if left_out else "")
        )
    return len(counts)


def _pair_cells(schema: Schema) -> int:
    total = schema.n_levels
    return int((total**2 - (schema.sizes**2).sum()) // 2)


class _Part:
    """The tables of one stage while they are read."""

    def __init__(self, schema: Schema, stage: int, claim: _Claim) -> None:
        m, d = schema.n_attributes, schema.n_levels
        self.schema, self.stage, self._claim = schema, stage, claim
        self.total: int | None = None
        self._total_scale: float | None = None
        self.one_way, self._seen_one = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=bool)
        self._one_scales, self._pair_scales = np.full(m, np.nan), np.full((m, m), np.nan)
        # Made when the first cell comes: a stage may measure one-way tables only.
        self.pairs, self._seen_pairs = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=bool)
        self.rounded = False

    @property
    def has_one_way(self) -> bool:
        """Whether any one-way cell was read."""
        return bool(self._seen_one.any())

    @property
    def has_pairs(self) -> bool:
        """Whether any two-way cell was read."""
        return bool(self.pairs.size)

    def add_total(self, values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """The noisy number of rows."""
        if self._claim.neighbors == "replace-one":
            raise ModelError("it holds a noisy number of rows, which is measured under add-remove only.")
        if self.total is not None or values.size > 1:
            raise ModelError(f"stage {self.stage} holds the number of rows twice.")
        self.total, self._total_scale = int(values[0]), float(scales[0])

    def add_one_way(self, at: NDArray[np.int64], values: NDArray[np.int64], scales: NDArray[np.float64]) -> None:
        """Cells of one-way tables."""
        self._once(at, self._seen_one[at])
        self._seen_one[at], self.one_way[at] = True, values
        table = block_of_level(self.schema)[at]
        self._one_scales[table] = np.where(np.isnan(self._one_scales[table]), scales, self._one_scales[table])
        self._same(table[self._one_scales[table] != scales], None)

    def add_pairs(
        self,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        values: NDArray[np.int64],
        scales: NDArray[np.float64],
    ) -> None:
        """Cells of two-way tables, by their levels among all d, those of the earlier attribute first."""
        d, block = self.schema.n_levels, block_of_level(self.schema)
        if not self.has_pairs:
            self.pairs, self._seen_pairs = np.zeros((d, d), dtype=np.int64), np.zeros((d, d), dtype=bool)
        self._once(first * d + second, self._seen_pairs[first, second])
        self._seen_pairs[first, second], self.pairs[first, second] = True, values
        one, two = block[first], block[second]
        known = self._pair_scales[one, two]
        self._pair_scales[one, two] = np.where(np.isnan(known), scales, known)
        wrong = self._pair_scales[one, two] != scales
        self._same(one[wrong], two[wrong])

    def _once(self, cells: NDArray[np.int64], seen: NDArray[np.bool_]) -> None:
        if seen.any() or np.unique(cells).size < cells.size:
            raise ModelError(f"stage {self.stage} holds a cell twice. Give every cell once.")

    def _same(self, one: NDArray[np.int64], two: NDArray[np.int64] | None) -> None:
        if one.size:
            table = _table(self.schema, int(one[0]), None if two is None else int(two[0]))
            raise ModelError(f"stage {self.stage}: all cells of {table} must have one scale.")

    def check_whole(self) -> None:
        """Refuse tables that lack cells, or that are there without the others."""
        schema = self.schema
        block, offsets = block_of_level(schema), schema.offsets[:-1]
        if self.has_one_way and not self._seen_one.all():
            self._lacking(int(block[np.argmin(self._seen_one)]), None, np.isnan(self._one_scales))
        if self.has_pairs:
            first, second = np.triu_indices(schema.n_attributes, 1)
            filled = np.add.reduceat(
                np.add.reduceat(self._seen_pairs, offsets, axis=0, dtype=np.int64), offsets, axis=1
            )
            lacking = np.nonzero(filled[first, second] < schema.sizes[first] * schema.sizes[second])[0]
            if lacking.size:
                self._lacking(int(first[lacking[0]]), int(second[lacking[0]]), np.isnan(self._pair_scales))

    def _lacking(self, i: int, j: int | None, empty: NDArray[np.bool_]) -> None:
        whole = bool(empty[i] if j is None else empty[i, j])
        raise ModelError(
            f"stage {self.stage}: {_table(self.schema, i, j)} {'is missing' if whole else 'lacks cells'}. A stage must "
            f"hold all {'one' if j is None else 'two'}-way tables of the schema in full, or none."
        )

    def plan(self) -> Plan:
        """The scales that were read."""
        upper = np.triu_indices(self.schema.n_attributes, 1)
        return Plan(
            total=self._total_scale,
            one_way=self._one_scales if self.has_one_way else np.empty(0),
            pairs=self._pair_scales[upper] if self.has_pairs else np.empty(0),
        )


def _table(schema: Schema, i: int, j: int | None) -> str:
    names = schema.names
    return f"the table of '{names[i]}'" if j is None else f"the table of '{names[i]}' and '{names[j]}'"


def _scatter(batch: pa.RecordBatch, schema: Schema, parts: Sequence[_Part]) -> None:
    """Put a batch of cells where they belong."""
    stages = np.asarray(batch.column("stage"))
    values, rounded = _values(batch.column("value"))
    scales = np.asarray(batch.column("scale").cast(pa.float64()).fill_null(math.nan))
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ModelError("scales must be positive numbers. State the noise of every cell.")
    first = _levels(batch, "attribute", "level", schema)
    second = _levels(batch, "attribute_2", "level_2", schema)
    if ((first < 0) & (second >= 0)).any():
        raise ModelError("a cell has a second attribute and no first.")
    block = block_of_level(schema)
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


def _values(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole counts, and which of them were rounded."""
    if column.null_count:
        raise ModelError("a cell has no value. Every cell of a table needs one, seen or not.")
    given = np.asarray(column.cast(pa.float64(), safe=False))
    if not (np.abs(given) <= _MAX_VALUE).all():
        raise ModelError("values must be finite and at most 2**53 in size.")
    whole = np.rint(given)
    return whole.astype(np.int64), whole != given


def _levels(batch: pa.RecordBatch, attribute: str, level: str, schema: Schema) -> NDArray[np.int64]:
    """Which of the d levels each row names, shape (rows,); -1 where both are null."""
    names, texts = (_coded(batch.column(name)) for name in (attribute, level))
    if ((names[0] < 0) != (texts[0] < 0)).any():
        raise ModelError(f"'{attribute}' and '{level}' must be given together, or both be null.")
    pairs, which = np.unique(np.stack([names[0], texts[0]]), axis=1, return_inverse=True)
    known = {name: i for i, name in enumerate(schema.names)}
    codes = {name: {text: code for code, text in enumerate(schema.attribute(name).levels)} for name in known}
    found = np.full(pairs.shape[1], -1, dtype=np.int64)
    left_out = {} if schema.whole is None else schema.whole.determined
    for place, (one, two) in enumerate(pairs.T.tolist()):
        if one < 0:
            continue
        name, text = names[1][one], texts[1][two]
        if name in left_out:
            raise ModelError(f"'{name}' is determined by '{left_out[name]}' and has no table. Leave its tables out.")
        if name not in known:
            raise ModelError(f"the schema has no attribute '{name!s:.60}'. It has: {', '.join(known)!s:.200}.")
        if text not in codes[name]:
            raise ModelError(f"attribute '{name}' has no level '{text!s:.60}'. Use the names that the schema gives.")
        found[place] = schema.offsets[known[name]] + codes[name][text]
    return found[which.ravel()]


def _coded(column: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """Indices, -1 for null, and the texts that they stand for."""
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, dtype=np.int64), []
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = np.asarray(column.indices.cast(pa.int64()).fill_null(-1))
    return indices, column.dictionary.to_pylist()
