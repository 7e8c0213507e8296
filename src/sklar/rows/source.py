"""Tables before they are read: names, types, and batches of the wanted columns, of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from sklar.errors import DataError
from sklar.machine.threads import merged, workers
from sklar.machine.wording import failing, said
from sklar.public.arrow import ColumnType
from sklar.public.schema import Schema
from sklar.public.settings import WITH_A_POINT, Reading

if TYPE_CHECKING:
    from sklar.rows.engines import CountedTable

BATCH_ROWS = 65_536
_BATCH_CELLS = 1 << 26

Batches = Iterator[pl.DataFrame]
# From the first row, or byte of a text file, to the one before the last.
Span = tuple[int, int]
Open = Callable[[tuple[str, ...]], Batches]
Normalizer = Callable[[pl.DataFrame], pl.DataFrame]


def batch_rows(columns: int) -> int:
    """How many rows a batch with this many columns may have: its memory is bounded too."""
    # A power of two, so that columns of bits are cut between words.
    return int(min(BATCH_ROWS, 1 << (max(_BATCH_CELLS // max(columns, 1), 64).bit_length() - 1)))


class AnyColumns(tuple[str, ...]):
    """The columns of a file whose rows name their own: any name is one, and a row that lacks it has a null there."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that can be read once, in batches of the wanted columns; a folder's `parts` are its files.

    `n_rows` is None where no file states it, `types` where columns have none. `find_columns` lists the columns of a
    table whose rows name them, by reading them: private. `normalize` puts batches into plain writing where the schema
    says that they are not; `explain` says, from the header alone, why columns are absent.
    """

    name: str
    columns: tuple[str, ...] = field(repr=False)
    open_batches: Open = field(repr=False)
    n_rows: int | None = None
    types: dict[str, ColumnType] | None = field(default=None, repr=False)
    path: Path | None = None
    parts: tuple[Source, ...] = ()
    threaded: bool = False
    find_columns: Callable[[], tuple[str, ...]] | None = field(default=None, repr=False)
    normalize: Normalizer | None = field(default=None, repr=False)
    explain: Callable[[Collection[str]], str | None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_different_names(self)

    def scan(self, columns: tuple[str, ...]) -> Batches:
        """The same batches as `batches` in any order: the files of a folder are read side by side."""
        parts = self.parts or (self,)
        return merged((part.batches(columns) for part in parts), files_at_once(parts))

    def batches(self, columns: tuple[str, ...]) -> Batches:
        """Batches of these columns, in this order, at most `batch_rows` rows each."""
        rows = batch_rows(len(columns))
        with failing(DataError, said("rows.cut_off", table=self.name), (Exception, pl.exceptions.PanicException)):
            for batch in self.open_batches(columns):
                for start in range(0, batch.height, rows):
                    part = batch if batch.height <= rows else batch.slice(start, rows)
                    yield part if self.normalize is None else self.normalize(part)


def files_at_once(parts: Sequence[Source]) -> int:
    """How many files are read side by side: one a thread, but two where reading one takes threads and memory itself."""
    return min(2, workers()) if any(part.threaded for part in parts) else workers()


def require_different_names(source: Source | CountedTable) -> None:
    """Refuse a table in which a column's name is repeated."""
    first: dict[str, int] = {}
    for number, name in enumerate(source.columns, start=1):
        if first.setdefault(name, number) != number:
            raise DataError(said("rows.same_name", first=first[name], second=number, table=source.name))


def require_columns(source: Source | CountedTable, schema: Schema) -> None:
    """Refuse a table that lacks a column for some attribute.

    The table's other columns are not named: what the schema leaves out stays out of messages too.
    """
    absent = [name for name in schema.columns if name not in source.columns]
    if not absent:
        return
    explain = getattr(source, "explain", None)
    headless = explain is not None and len(absent) == len(schema.columns)
    remedy = (explain and explain(absent)) or said("rows.headless" if headless else "rows.correct")
    raise DataError(f"{source.name} has no column for {', '.join(map(repr, absent))}. {remedy}")


def require_person(source: Source | CountedTable, schema: Schema) -> None:
    """Refuse a table that lacks the column of ids that the schema names."""
    if schema.person is not None and schema.person.column not in source.columns:
        raise DataError(said("rows.no_ids", table=source.name, column=schema.person.column))


def normalizer(reading: Reading, schema: Schema | None) -> Normalizer | None:
    """A function that puts batches into plain notation, None where they are; without a schema, only `nulls` count."""
    attributes = schema.attributes if schema is not None and reading.rewrites_numbers else ()
    # Texts with a meaning in the schema stay as written, as do columns with a format.
    numbers = {
        attribute.name: [text for text in (attribute.missing, *attribute.special) if isinstance(text, str)]
        for attribute in attributes
        if (attribute.axis.numeric and attribute.axis.grows and attribute.format is None)
        or isinstance(next(iter(attribute.values), None), int)
    }
    if not reading.nulls and not numbers:
        return None
    return lambda batch: pl.DataFrame([_plain(each, reading, numbers.get(each.name)) for each in batch.iter_columns()])


def _plain(column: pl.Series, reading: Reading, kept: Collection[str] | None) -> pl.Series:
    """One column, but for the texts that are `kept`; None where it does not hold numbers."""
    if kept is None and not reading.nulls:
        return column
    if column.dtype in (pl.Categorical, pl.Enum, pl.Binary):
        with suppress(pl.exceptions.PolarsError):
            column = column.cast(pl.String)
    if column.dtype in (pl.Object, pl.Binary):
        # Python's values, and bytes that are not UTF-8.
        values = [_plain_value(value, reading, kept) for value in column]
        return pl.Series(column.name, values, dtype=pl.Object)
    if column.dtype != pl.String:
        return column
    text = plain = pl.col("text")
    if kept is not None:
        number = text.str.replace_all(f"[{reading.grouping}]", "") if reading.grouping else text
        number = number.str.replace_all(reading.decimal, ".", literal=True)
        if reading.decimal != ".":
            other = text.str.replace_all(".", reading.decimal, literal=True)
            plain = pl.when(text.str.contains(f"^(?:{WITH_A_POINT})$")).then(other).otherwise(plain)
        plain = pl.when(text.str.contains(f"^(?:{reading.number})$")).then(number).otherwise(plain)
        plain = pl.when(text.is_in(list(kept))).then(text).otherwise(plain)
    plain = pl.when(~text.is_in(list(reading.nulls))).then(plain)
    return column.to_frame("text").select(plain).to_series().alias(column.name)


def _plain_value(value: object, reading: Reading, kept: Collection[str] | None) -> object:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return value
    if text in reading.nulls:
        return None
    return value if kept is None or text in kept else reading.plain(text)
