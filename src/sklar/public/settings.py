"""The settings of `[table]`: how a table's text is written, and which of its rows are one person's.

Delimiter, encoding and quotes say how bytes become texts, `decimal` and `thousands` how a text becomes a number,
`nulls` which texts mean that there is no value, for every file of the table. The column of ids groups rows and does
nothing else: it is no attribute, and no release holds a value of it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

from sklar.errors import BudgetError, SchemaError
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, Budget
from sklar.machine.wording import said, stated
from sklar.public.attribute import Attribute, refuse, repeated, within

READING_KEYS = ("delimiter", "decimal", "thousands", "encoding", "quote", "header", "columns", "nulls")
PERSON_KEYS = ("person", "count", "rows_per_person", "null_ids")
# Texts that may be numbers with a decimal point.
WITH_A_POINT = r"[\s\d.eE+-]*\.[\s\d.eE+-]*"
# Signs that people write between groups of three digits. A space stands for those that do not break a line, too.
_GROUPING = {" ": " \u00a0\u202f", "'": "'\u2019", "\u2019": "'\u2019", "\u00a0": "\u00a0", "\u202f": "\u202f"}
_GROUPING |= {sign: sign for sign in ".,_"}

Count = Literal["people", "rows"]
NullIds = Literal["person", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the text of a table is written; as it stands, the way that Sklar writes.

    `delimiter` is None where the file's name says it: a comma in .csv, a tab in .tsv. `quote` is empty where nothing is
    quoted. `columns` name the columns of files that have no header. `nulls` are texts that mean null in every column.
    """

    delimiter: str | None = None
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    quote: str = '"'
    columns: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()

    @property
    def header(self) -> bool:
        """Whether files begin with the names of their columns."""
        return not self.columns

    @property
    def rewrites_numbers(self) -> bool:
        """Whether numbers are written in another way than Python reads them."""
        return self.decimal != "." or self.thousands is not None

    @property
    def grouping(self) -> str:
        """The signs that may stand between groups of digits."""
        return _GROUPING[self.thousands] if self.thousands else ""

    @property
    def number(self) -> str:
        """A pattern, for Python and polars alike, that a whole text matches if it is a number in this writing."""
        return _number(self.decimal, self.grouping)

    def plain(self, text: str) -> str:
        """A text with its number as Python reads it, if it is one; never one that this writing does not have.

        A text that Python would read as a number, and that is none in this writing (1.5 beside a decimal comma), comes
        back as one that Python does not read: it is no value, rather than another one.
        """
        if self.rewrites_numbers and re.fullmatch(self.number, text):
            for sign in self.grouping:
                text = text.replace(sign, "")
            return text.replace(self.decimal, ".")
        if self.decimal != "." and re.fullmatch(WITH_A_POINT, text):
            return text.replace(".", self.decimal)
        return text


PLAIN = Reading()


@cache
def _number(decimal: str, grouping: str) -> str:
    point, digits = re.escape(decimal), "[0-9]+"
    if grouping:
        # Groups of three; in India of two before the last.
        sign = f"[{grouping}]"
        digits = f"(?:[0-9]{{1,3}}(?:{sign}[0-9]{{2,3}})*{sign}[0-9]{{3}}|[0-9]+)"
    return rf"\s*[+-]?(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*"


def codec_of(encoding: str) -> str | None:
    """Python's name of an encoding that files may have, None where it is none."""
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        return None
    name = {"utf-8-sig": "utf-8", "cp65001": "utf-8"}.get(name, name)
    return name if re.fullmatch(stated("sklar.public", "texts.toml")["encodings"], name) else None


@within("[table] ")
def parse_reading(table: Mapping[str, Any]) -> Reading:
    """The reading that `[table]` states; keys that it leaves out have their plain meaning."""
    stated = [table.get(key, getattr(PLAIN, key)) for key in READING_KEYS]
    delimiter, decimal, thousands, encoding, quote, header, columns, nulls = stated
    for key, texts in (("columns", columns), ("nulls", nulls)):
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise SchemaError(f"{key} must be a list of texts, got {texts!r}.")
        twice = repeated(texts)
        refuse((twice is not None, f"{key} must differ, got {twice!r} twice. Remove one."))
    codec = codec_of(encoding) if isinstance(encoding, str) else None
    grouped = thousands is None or (thousands in _GROUPING and thousands != decimal)
    unnamed = not header and not columns
    refuse(
        (decimal not in (".", ","), f"decimal must be '.' or ',', got {decimal!r}."),
        (not grouped, f"thousands must be . , ' _ or a space, and not the decimal sign, got {thousands!r}."),
        (codec is None, f"encoding must be one like 'utf-8', 'windows-1252' or 'utf-16', got {encoding!r}."),
        (not _is_sign(delimiter, None), said("public.delimiter", got=delimiter)),
        (not _is_sign(quote, ""), said("public.quote", got=quote)),
        (delimiter == quote, f"delimiter and quote must differ, got {delimiter!r} for both."),
        (not isinstance(header, bool), f"header must be true or false, got {header!r}."),
        (header and columns, "columns name what has no header. Add header = false, or remove columns."),
        (unnamed, "header = false needs columns = [...]: a name for each column of the file, in order."),
        ("" in columns, "columns must not be empty texts. Name every column of the file, in order."),
        ("" in nulls, "nulls must not list '', which is null anyway. Remove it."),
    )
    encoding = "utf-8" if codec == "utf-8" else encoding.lower()
    written = {"delimiter": delimiter, "decimal": decimal, "thousands": thousands, "encoding": encoding, "quote": quote}
    return Reading(**written, columns=tuple(columns), nulls=tuple(nulls))


def _is_sign(text: object, none: str | None) -> bool:
    sign = isinstance(text, str) and len(text) == 1 and text.isascii() and not text.isalnum() and text not in "\r\n\0"
    return text == none or sign


def describe_reading(reading: Reading) -> dict[str, Any]:
    """The keys of `[table]` that `parse_reading` reads: none of a plain reading."""
    stated = {key: getattr(reading, key) for key in READING_KEYS if getattr(reading, key) != getattr(PLAIN, key)}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in stated.items()}


def check_reading(reading: Reading, attributes: Iterable[Attribute]) -> None:
    """Refuse a reading that contradicts the attributes."""
    for attribute in attributes:
        name, values = attribute.name, (*attribute.values, *attribute.special)
        if reading.columns and attribute.column not in reading.columns:
            raise SchemaError(f"attribute '{name}' must be one of the columns that [table] lists. Add or rename it.")
        hidden = next((str(value) for value in values if str(value) in reading.nulls), None)
        refuse((hidden is not None, said("public.null_value", name=name, value=hidden)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Rows with the same id in `column` are one person's, and a release protects all of them together.

    `count` says what a release counts: "people" takes one row of each person, chosen at random, so that shares are
    averaged over people; "rows" takes at most `rows_per_person` rows of each, chosen at random, and noise grows with
    that number. A row without an id is a person of its own, or left out where `null_ids` is "drop". "everyone" stands
    for linked tables, of which people are counted with all that they have.
    """

    column: str
    count: Count | Literal["everyone"]
    rows_per_person: int = 1
    null_ids: NullIds = "person"

    @property
    def words(self) -> str:
        """What is counted, in words."""
        if self.count == "everyone":
            return "people, each as one of whatever number of rows they have in other tables"
        if self.count == "people":
            return "people: one row of each, chosen at random"
        return f"rows: at most {self.rows_per_person:,} of each person, chosen at random"


@within("[table] ")
def parse_person(table: Mapping[str, Any], names: Container[str]) -> Person | None:
    """The person that `[table]` names; None where every row is a person. `names` are those of the attributes."""
    column, count, rows, null_ids = map(table.get, PERSON_KEYS)
    if column is None:
        alone = next((key for key in PERSON_KEYS if key in table), None)
        refuse((alone, f"{alone} goes with person. Add person = 'COLUMN', or remove {alone}."))
        return None
    many = type(rows) is int and 1 <= rows <= MAX_ROWS_PER_PERSON
    refuse(
        (not isinstance(column, str) or not column, f"person must be the name of the column of ids, got {column!r}."),
        (count not in get_args(Count), said("public.count", got=count)),
        (null_ids not in (None, *get_args(NullIds)), said("public.null_ids", got=null_ids)),
        (count == "people" and rows is not None, f"rows_per_person goes with count = 'rows', got {rows!r}. Remove it."),
        (count == "rows" and not many, said("public.rows_of_one", most=MAX_ROWS_PER_PERSON, got=rows)),
        (column in names, f"person = '{column}' is never released, and [attributes] lists it. Remove the attribute."),
    )
    return Person(column=column, count=table["count"], rows_per_person=rows or 1, null_ids=null_ids or "person")


def whose(said: str) -> Person | None:
    """The person that an answer names: COLUMN (one row of each counts), COLUMN=8 (up to 8 do), or each-row for none.

    >>> whose("patient_id=8").rows_per_person, whose("each-row")
    (8, None)
    """
    column, _, rows = said.rpartition("=") if re.search(r"=\d+$", said) else (said, "", "")
    stated = {"count": "rows", "rows_per_person": int(rows)} if rows else {"count": "people"}
    return None if said == "each-row" else parse_person({"person": column, **stated}, ())


def describe_person(person: Person | None) -> dict[str, Any]:
    """The keys that `parse_person` reads."""
    if person is None:
        return {}
    rows = {"rows_per_person": person.rows_per_person} if person.count == "rows" else {}
    nulls = {} if person.null_ids == "person" else {"null_ids": person.null_ids}
    return {"person": person.column, "count": person.count} | rows | nulls


def budget_for(person: Person | None, budget: Budget) -> Budget:
    """The budget for the unit that a schema names: what costs what depends on it."""
    rows = None if person is None else person.rows_per_person
    if budget.rows_per_person not in (None, rows):
        says = "that a row is a person" if person is None else f"rows_per_person = {rows}"
        raise BudgetError(said("public.rows_per_person", rows=budget.rows_per_person, says=says))
    return replace(budget, rows_per_person=rows)
