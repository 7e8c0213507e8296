"""What ids, keys of linked tables and files say of people: exact, hence PRIVATE, for the custodian before a release."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sklar.errors import DataError, SchemaError
from sklar.machine.progress import SILENT, Progress
from sklar.public.events import Linked
from sklar.public.schema import Schema
from sklar.rows.people import Marker, ids_of
from sklar.rows.read import open_source
from sklar.rows.shares import LinkedRows
from sklar.rows.source import require_person

# Counts of people are merged once as many are pending as there are people, and at least so many.
_PENDING = 1 << 20
_TRIED = (1, 2, 4, 8, 16, 32, 64)
_QUANTILES = (0.5, 0.9, 0.99)
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many rows the people of a table have: PRIVATE.

    `quantiles` are (share of people, rows), `kept` is (rows per person, share of the rows that would be counted).
    """

    column: str
    rows: int
    people: int
    without_id: int
    most: int
    quantiles: tuple[tuple[float, int], ...]
    kept: tuple[tuple[int, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @property
    def warning(self) -> str | None:
        """What the ids seem to be where they do not name people."""
        if self.rows <= 1:
            return None
        if self.without_id == self.rows:
            return f"No row has an id in '{self.column}': each would be a person of its own. Name another column."
        if self.people - self.without_id == 1:
            return (
                f"All rows have one id in '{self.column}': the whole table would be one person's, whom noise must "
                "hide. It is no column of people. Name another one."
            )
        if self.most == 1:
            return (
                f"Every row has an id of its own in '{self.column}': it tells rows apart, not people. If each person "
                "has one row, remove person; else name the column of people."
            )
        return None

    def lines(self) -> list[str]:
        """For the custodian."""
        shares = ", ".join(f"{share:.0%} have at most {rows:,}" for share, rows in self.quantiles)
        kept = ", ".join(f"{rows:,}: {share:.1%}" for rows, share in self.kept)
        lines = [
            f"People by '{self.column}': {self.people:,}, in {self.rows:,} rows; {self.without_id:,} rows have no id.",
            f"Rows of a person: {self.rows / max(self.people, 1):.1f} on average, {shares}, the most is {self.most:,}.",
            f"Rows that would be counted, by rows_per_person: {kept}.",
        ]
        return lines if self.warning is None else [*lines, self.warning]


def rows_per_person(data: object, schema: Schema, *, progress: Progress = SILENT) -> Crowd:
    """Count the rows of each person: PRIVATE. Memory grows with the number of people."""
    person = schema.person
    if person is None:
        raise SchemaError("the schema names no person. Add person = 'COLUMN' to [table] (docs/people.md).")
    source = open_source(data, schema)
    require_person(source, schema)
    mark, rows, without = Marker(), 0, 0
    counted, pending = _merge([]), list[pl.DataFrame]()
    progress.stage("people", unit="rows")
    for batch in source.scan((person.column,)):
        ids = ids_of(batch.to_series(0))
        # Half a mark is enough to count by: no promise depends on it.
        marks: NDArray[np.uint64] = mark(ids.drop_nulls())[:, 0]
        pending.append(_merge([pl.DataFrame({"mark": marks}).with_columns(rows=pl.lit(1, pl.Int64))]))
        rows, without = rows + batch.height, without + ids.null_count()
        if sum(part.height for part in pending) > max(_PENDING, counted.height):
            counted, pending = _merge([counted, *pending]), []
        progress.advance(batch.height)
    alone = np.ones(without if person.null_ids == "person" else 0, dtype=np.int64)
    own = np.sort(np.concatenate([_merge([counted, *pending])["rows"].to_numpy(), alone]))
    whole = max(int(own.sum()), 1)
    return Crowd(
        column=person.column,
        rows=rows,
        people=own.size,
        without_id=without,
        most=int(own.max(initial=0)),
        quantiles=tuple((share, int(own[int(np.ceil(share * own.size)) - 1])) for share in _QUANTILES if own.size),
        kept=tuple((tried, float(np.minimum(own, tried).sum()) / whole) for tried in _TRIED),
    )


def _merge(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Add up the rows of each mark."""
    nobody = pl.DataFrame(schema={"mark": pl.UInt64, "rows": pl.Int64})
    return pl.concat([nobody, *parts]).group_by("mark").sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How people and events of linked tables match: PRIVATE.

    `unmatched` events have the key of nobody and are dropped; `beyond` are dropped at random of people who have more
    than the schema's at_most; `repeated` rows of people have the key of an earlier row and are dropped.
    """

    people: int
    events: int
    unmatched: int
    beyond: int
    repeated: int
    without_events: int
    most: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For the custodian."""
        lines = [
            f"{self.people:,} people with {self.events:,} events that count; {self.without_events:,} people have none, "
            f"{self.most} is the most.",
            f"{self.unmatched:,} events have a key that no person has, and are dropped.",
            f"{self.beyond:,} events are dropped at random of people who have more than at_most.",
        ]
        if self.repeated:
            lines.append(f"{self.repeated:,} rows of people have the key of an earlier row, and are dropped.")
        if self.events == 0:
            lines.append("no event has a person. Are both keys the same thing, written alike (7 is not 007)?")
        elif self.most <= 1:
            lines.append("nobody has two events. If the key is unique for every event, it names events.")
        elif self.people == 1:
            lines.append("there is one person. If the key is the same in every row, it names nobody.")
        return [f"PRIVATE: {line}" for line in lines]


def check_links(people: object, events: object, linked: Linked) -> Links:
    """How the events match their people: PRIVATE, exact counts."""
    joined = LinkedRows(people, events, linked).join()
    return Links(
        people=joined.n_people,
        events=int(joined.begins[-1]),
        unmatched=joined.unmatched,
        beyond=joined.beyond,
        repeated=joined.repeated,
        without_events=int(np.count_nonzero(joined.numbers == 0)),
        most=int(joined.numbers.max(initial=0)),
    )


def hash_files(data: object, *, progress: Progress = SILENT) -> tuple[bytes, ...]:
    """The SHA-256 of every file that this path stands for, for a ledger to notice two names of the same rows: PRIVATE.

    Compared by the custodian's commands alone: a release that compared them would be refused or not depending on rows.
    """
    if not isinstance(data, str | Path) or "://" in str(data):
        raise DataError("a data set is bound to files: give a file or a folder, not a database or an object store.")
    source = open_source(data)
    paths = [part.path for part in source.parts or (source,) if part.path is not None]
    progress.stage("hash", total=sum(path.stat().st_size for path in paths), unit="bytes")
    digests = []
    for path in paths:
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
                    progress.advance(len(piece))
        except OSError as error:
            raise DataError(f"file '{path}' cannot be read: {error.strerror or error}. Check the path.") from None
        digests.append(digest.digest())
    return tuple(digests)
