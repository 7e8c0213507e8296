"""What the rows say of people: how many there are, and how many rows they have. Exact, hence private."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.machine.progress import SILENT, Progress
from sklar.public.person import Person
from sklar.public.schema import Schema
from sklar.rows.people import Marker, ids_of
from sklar.rows.read import open_source
from sklar.rows.source import require_person

# Marks are brought together once there are as many as were known, and at least so many.
_PENDING = 1 << 20
_TRIED = (1, 2, 4, 8, 16, 32, 64)
_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many rows the people of a table have: private.

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
        """What the ids seem to be instead of people's, if they are none."""
        named = self.people - self.without_id
        if self.rows > 1 and self.without_id == self.rows:
            return f"No row has an id in '{self.column}': each would be a person of its own. Name another column."
        if named == 1 and self.rows > 1:
            return (
                f"All rows have one id in '{self.column}': the whole table would be one person's, whom noise must "
                "hide. It is no column of people. Name another one."
            )
        if self.rows > 1 and self.most == 1:
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


def look_at_people(data: object, schema: Schema, *, progress: Progress = SILENT) -> Crowd:
    """Count the rows of each person: private. Memory grows with the number of people."""
    person = schema.person
    if person is None:
        raise SchemaError("the schema names no person. Add person = 'COLUMN' to [table] (docs/people.md).")
    source = open_source(data, schema)
    require_person(source, schema)
    mark, pending, waiting = Marker(), [_nobody()], 0
    rows = without = 0
    progress.stage("people", unit="rows")
    for batch in source.scan((person.column,)):
        ids = ids_of(batch.to_series(0))
        # Half a mark is enough to count by: no promise hangs on it.
        pending.append(np.unique(mark(ids.drop_nulls())[:, 0], return_counts=True))
        rows, without = rows + batch.height, without + ids.null_count()
        waiting += pending[-1][0].size
        if waiting > max(_PENDING, pending[0][0].size):
            pending, waiting = [_together(pending)], 0
        progress.advance(batch.height)
    return _described(person, rows, without, _together(pending)[1])


def _described(person: Person, rows: int, without: int, times: NDArray[np.int64]) -> Crowd:
    alone = without if person.null_ids == "person" else 0
    own = np.sort(np.concatenate([times, np.ones(alone, dtype=np.int64)]))
    whole = max(int(own.sum()), 1)
    return Crowd(
        column=person.column,
        rows=rows,
        people=own.size,
        without_id=without,
        most=int(own[-1]) if own.size else 0,
        quantiles=tuple((share, _quantile(own, share)) for share in _QUANTILES if own.size),
        kept=tuple((tried, float(np.minimum(own, tried).sum()) / whole) for tried in _TRIED),
    )


def _quantile(ordered: NDArray[np.int64], share: float) -> int:
    return int(ordered[int(np.ceil(share * ordered.size)) - 1])


def _nobody() -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)


def _together(
    parts: list[tuple[NDArray[np.uint64], NDArray[np.int64]]],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    marks, places = np.unique(np.concatenate([each for each, _ in parts]), return_inverse=True)
    times = np.zeros(marks.size, dtype=np.int64)
    np.add.at(times, places, np.concatenate([each for _, each in parts]))
    return marks, times
