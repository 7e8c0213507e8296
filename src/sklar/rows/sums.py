"""Sums over the parts of a table: what each part was counted to is cut up, added piece by piece, and put together.

Pieces are (key, number of the part, bytes). Pieces of one key are added wherever they meet, so that nobody holds more
than a few tables at once, and only sums reach whoever puts them together. A part is added once for each key: a piece
that comes again under its number, as a repeated task may send it, changes nothing. Exact counts: all of it is private.

The first keys are runs of whole numbers (the number of rows, then the cells of all tables); those after them are
buckets of values of private domains, each value in the bucket that it has in every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError
from sklar.rows.bounded import packed
from sklar.rows.count import Ask, Exact, no_answers

Piece = tuple[int, int, bytes]

# Cells that are summed together: a megabyte, so that they are well spread and no piece is large.
RUN = 1 << 17
# Different values that wait at most until they are added up.
_WAITING = 1 << 20
_WORDS = {4: "<u4", 8: "<i8"}
_VALUES = pl.Schema({"attribute": pl.Int32, "text": pl.String, "unit": pl.Int64, "times": pl.Int64})


def length(ask: Ask) -> int:
    """How many whole numbers the answers are: the number of rows, and the cells of all tables."""
    return 1 + sum(table.n_cells for table in ask.tables)


def runs_of(ask: Ask) -> int:
    """In how many runs they are summed."""
    return -(-length(ask) // RUN)


def cut(answers: Exact, ask: Ask, number: int, buckets: int) -> Iterator[Piece]:
    """The answers of one part: no cell exceeds the number of rows, so that four bytes mostly hold it."""
    word = 4 if answers.n_rows < 2**32 else 8
    flat = np.concatenate([[answers.n_rows], *answers.tables]).astype(_WORDS[word])
    for run, first in enumerate(range(0, flat.size, RUN)):
        yield run, number, bytes([word]) + flat[first : first + RUN].tobytes()
    if not ask.values:
        return
    frames = []
    for attribute, found in enumerate(answers.values):
        units, times = found.values()
        frames.append(pl.DataFrame({"attribute": attribute, "text": None, "unit": units, "times": times}, _VALUES))
        texts = {"attribute": attribute, "text": list(found.texts), "unit": None, "times": list(found.texts.values())}
        frames.append(pl.DataFrame(texts, _VALUES))
    values = pl.concat(frames)
    texts_at = [0 if text is None else crc32(text.encode()) % buckets for text in values["text"]]
    place = np.maximum(values["unit"].fill_null(0).to_numpy() % buckets, np.array(texts_at, dtype=np.int64))
    for bucket in range(buckets):
        yield runs_of(ask) + bucket, number, packed(values.filter(pl.Series(place == bucket)))


def add(pieces: Iterable[Piece], ask: Ask) -> Iterator[Piece]:
    """The sum of each key that came here, and of how many parts it is."""
    runs: dict[int, NDArray[np.int64]] = {}
    waiting: dict[int, list[pl.DataFrame]] = {}
    parts: dict[int, set[int]] = {}
    first = runs_of(ask)
    for key, number, data in pieces:
        if number in parts.setdefault(key, set()):
            continue
        parts[key].add(number)
        if key >= first:
            held = waiting.setdefault(key, [])
            held.append(pl.read_ipc(data))
            if sum(frame.height for frame in held[1:]) > max(_WAITING, held[0].height):
                held[:] = [_added(held)]
            continue
        part = np.frombuffer(data, dtype=_WORDS[data[0]], offset=1)
        if key in runs:
            runs[key] += part
        else:
            runs[key] = part.astype(np.int64)
    for key, total in runs.items():
        yield key, len(parts[key]), total.astype("<i8").tobytes()
    for key, held in waiting.items():
        yield key, len(parts[key]), packed(_added(held))


def _added(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).group_by("attribute", "text", "unit").agg(pl.col("times").sum())


def join(sums: Sequence[Piece], ask: Ask, buckets: int, parts: int | None = None) -> Exact:
    """Exact from the sums of all keys, refused where a part is lacking in one; `parts` is how many there are."""
    found, runs = {number for _, number, _ in sums}, runs_of(ask)
    answers = no_answers(ask)
    if not sums and not parts:
        return answers
    keys = runs + (buckets if ask.values else 0)
    # A part that is in some sums and not in others would be a table that no row was counted into once.
    if sorted(key for key, _, _ in sums) != list(range(keys)) or len(found) != 1 or parts not in (None, *found):
        raise DataError("Spark's partial counts do not add up. Nothing was released. Run it again.")
    flat = np.zeros(length(ask), dtype=np.int64)
    for key, _, data in sums:
        if key < runs:
            flat[key * RUN : (key + 1) * RUN] = np.frombuffer(data, dtype="<i8")
            continue
        for (attribute,), values in pl.read_ipc(data).group_by("attribute"):
            histogram = answers.values[int(attribute)]
            texts = values.filter(pl.col("text").is_not_null())
            histogram.texts.update(dict(zip(texts["text"], texts["times"], strict=True)))
            units = values.filter(pl.col("unit").is_not_null())
            histogram.add_times(units["unit"].to_numpy(), units["times"].to_numpy())
    ends = np.cumsum([table.n_cells for table in ask.tables])[:-1]
    tables = tuple(each.copy() for each in np.split(flat[1:], ends)) if ask.tables else ()
    return Exact(n_rows=int(flat[0]), tables=tables, values=answers.values)
