"""Sums over the parts of a table: what each part was counted to is cut up, added piece by piece, and put together.

Pieces are (key, number of the part, bytes). Pieces of one key are added wherever they meet, so that nobody holds more
than a few tables at once, and only sums reach whoever puts them together. A part is added once for each key: a piece
that comes again under its number, as a repeated task may send it, changes nothing. Exact counts: all of it is private.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.kernel.cells import Cells
from sklar.public.schema import Attribute, Schema
from sklar.rows.counts import Counts
from sklar.rows.discover import Histogram

Piece = tuple[int, int, bytes]

# Cells that are summed together: a megabyte, so that they are well spread and no piece is large.
RUN = 1 << 17
# Different values that wait at most until they are added up.
_WAITING = 1 << 20
_WORDS = {4: "<u4", 8: "<i8"}
_VALUES = pl.Schema({"attribute": pl.Int32, "text": pl.String, "unit": pl.Int64, "times": pl.Int64})
# In the place of an attribute: the number of rows.
_ROWS = -1
_NOT_WHOLE = "Spark's partial counts do not add up. Nothing was released. Run it again."


def length(cells: Cells) -> int:
    """How many numbers counts are: the number of rows, the one-way cells, the two-way cells."""
    return 1 + cells.n_levels + cells.n_cells


def runs_of(cells: Cells) -> int:
    """In how many runs they are summed."""
    return -(-length(cells) // RUN)


def cut_counts(counts: Counts, number: int) -> Iterator[Piece]:
    """The counts of one part, run by run: no cell exceeds the number of rows, so that four bytes mostly hold it."""
    word = 4 if counts.n_rows < 2**32 else 8
    flat = np.concatenate([[counts.n_rows], counts.one_way, counts.pairs]).astype(_WORDS[word])
    for run, first in enumerate(range(0, flat.size, RUN)):
        yield run, number, bytes([word]) + flat[first : first + RUN].tobytes()


def add_counts(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The sum of each run that came here, and of how many parts it is."""
    runs: dict[int, NDArray[np.int64]] = {}
    parts: dict[int, set[int]] = {}
    for run, number, data in pieces:
        added = parts.setdefault(run, set())
        if number in added:
            continue
        added.add(number)
        part = np.frombuffer(data, dtype=_WORDS[data[0]], offset=1)
        if run in runs:
            runs[run] += part
        else:
            runs[run] = part.astype(np.int64)
    for run, total in runs.items():
        yield run, len(parts[run]), total.astype("<i8").tobytes()


def join_counts(sums: Sequence[Piece], schema: Schema, parts: int | None = None) -> Counts:
    """Counts from the sums of all runs, refused where a part is lacking in one; `parts` is how many there are."""
    flat = np.zeros(length(schema.cells), dtype=np.int64)
    _require_whole(sums, runs_of(schema.cells), parts)
    for run, _, data in sums:
        flat[run * RUN : (run + 1) * RUN] = np.frombuffer(data, dtype="<i8")
    levels = schema.n_levels
    return Counts(n_rows=int(flat[0]), one_way=flat[1 : 1 + levels].copy(), pairs=flat[1 + levels :].copy())


def _require_whole(sums: Sequence[Piece], keys: int, parts: int | None) -> None:
    """A part that is in some sums and not in others would be a table that no row was counted into once."""
    found = {number for _, number, _ in sums}
    if not sums and not parts:
        return
    if sorted(key for key, _, _ in sums) != list(range(keys)) or len(found) != 1 or parts not in (None, *found):
        raise DataError(_NOT_WHOLE)


def cut_histograms(n_rows: int, histograms: Sequence[Histogram], number: int, buckets: int) -> Iterator[Piece]:
    """The histograms of one part: values in the bucket that each has in every part."""
    frames = [_framed(_ROWS, units=np.zeros(1, dtype=np.int64), times=np.array([n_rows]))]
    for attribute, found in enumerate(histograms):
        units, times = found.values()
        frames.append(_framed(attribute, units=units, times=times))
        frames.append(_framed(attribute, texts=list(found.texts), times=np.array(list(found.texts.values()))))
    values = pl.concat(frames)
    places = values["unit"].fill_null(0).to_numpy() % buckets
    texts = [0 if text is None else crc32(text.encode()) % buckets for text in values["text"]]
    place = np.maximum(places, np.array(texts, dtype=np.int64))
    for bucket in range(buckets):
        yield bucket, number, packed(values.filter(pl.Series(place == bucket)))


def _framed(
    attribute: int,
    *,
    texts: Sequence[str] | None = None,
    units: NDArray[np.int64] | None = None,
    times: NDArray[np.int64],
) -> pl.DataFrame:
    none = [None] * len(times)
    columns = {
        "attribute": [attribute] * len(times),
        "text": none if texts is None else texts,
        "unit": none if units is None else units,
        "times": times.astype(np.int64),
    }
    return pl.DataFrame(columns, schema=_VALUES)


def add_histograms(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The sum of each bucket that came here, and of how many parts it is."""
    waiting: dict[int, list[pl.DataFrame]] = {}
    parts: dict[int, set[int]] = {}
    for bucket, number, data in pieces:
        added, held = parts.setdefault(bucket, set()), waiting.setdefault(bucket, [])
        if number in added:
            continue
        added.add(number)
        held.append(unpacked(data))
        if sum(frame.height for frame in held[1:]) > max(_WAITING, held[0].height):
            held[:] = [_added(held)]
    for bucket, held in waiting.items():
        yield bucket, len(parts[bucket]), packed(_added(held))


def _added(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).group_by("attribute", "text", "unit").agg(pl.col("times").sum())


def join_histograms(
    sums: Sequence[Piece], attributes: Sequence[Attribute], buckets: int, parts: int | None = None
) -> tuple[int, list[Histogram]]:
    """The number of rows, and a histogram for each attribute, from the sums of all buckets."""
    _require_whole(sums, buckets, parts)
    histograms, n_rows = [Histogram() for _ in attributes], 0
    for _, _, data in sums:
        for (attribute,), values in unpacked(data).group_by("attribute"):
            if attribute == _ROWS:
                n_rows += int(values["times"].sum())
                continue
            found = histograms[int(attribute)]
            texts = values.filter(pl.col("text").is_not_null())
            found.texts.update(dict(zip(texts["text"], texts["times"], strict=True)))
            units = values.filter(pl.col("unit").is_not_null())
            found.add_times(units["unit"].to_numpy(), units["times"].to_numpy())
    return n_rows, histograms


def packed(frame: pl.DataFrame) -> bytes:
    """A frame as bytes, to be sent."""
    file = io.BytesIO()
    frame.write_ipc(file, compression="lz4")
    return file.getvalue()


def unpacked(data: bytes) -> pl.DataFrame:
    """The frame again."""
    return pl.read_ipc(data)
