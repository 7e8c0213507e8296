"""One column's public domain: its type, its levels, and what people call it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from sklar.errors import SchemaError
from sklar.kernel.cells import Ints, read_only
from sklar.public.axis import AXES, PARTS, AttributeKind, Axis

Outside = Literal["clip", "missing"]
Domain = Literal["public", "private", "found"]
Provenance = Literal["public", "rows"]
# Whether a person has reviewed an entry, or all of a draft was accepted as it was proposed.
Reviewed = bool | Literal["unread"]
_TRUTHS = dict.fromkeys(("false", "f", "no", "n", "0"), 0) | dict.fromkeys(("true", "t", "yes", "y", "1"), 1)


class Remembering:
    """Room for `cached_property` beside slots: equality, hashes, copies and pickles see fields alone."""

    __slots__ = ("__dict__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What people call a table or an attribute. `labels` are pairs of a level's name and what to show for it."""

    title: str | None = None
    description: str | None = None
    unit: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


NO_WORDS = Words()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Remembering):
    """One column's public domain.

    `values` are the categories (text, or whole numbers; in their order where `ordered`); `edges` are those of bins, as
    `axis` counts them. Bins include their lower edge; the last bin of a `real` includes its upper edge too. `points`
    are numbers that are levels of their own, in no bin. A point stands directly before the bin that it begins, else
    directly after the bin that contains it. `special` are texts or numbers that mean something other than a value (not
    applicable, refused), each a level of its own wherever it lies on the axis.

    Numbers above `clip` count as it, in a level of its own; the mean of all is that of limited numbers. Numbers drawn
    inside a bin are multiples of `step` (in seconds for what is timed). `texts` are those of false and true, `format`
    the strptime format of dates and times, or an example of a number ($1,234.50), `output` the type of the released
    column (see `outputs`).

    A release finds at most `at_most` categories or bins of a private `domain` with part of its budget; its model's
    schema lists them as `found`. Until then `edges` are the two bounds, `values` are empty, and sizes are those of
    `at_most` levels. `weight` says how much its tables matter, `provenance` what a reviewer said of the entry: public
    knowledge, or read from the rows at the custodian's risk.

    A date, a time of day or a weekday may be `part_of` a column of moments, whose parts are joined when rows are drawn.
    Each is measured as any attribute is: a row stands in one cell of its tables. `prefix` is how many first characters
    of codes are measured and released; codes of digits shorter than `length` have lost leading zeros, which come back.
    """

    name: str
    kind: AttributeKind
    values: tuple[str, ...] | tuple[int, ...] = ()
    edges: tuple[int, ...] | tuple[float, ...] = ()
    missing: str | None = None
    other: bool = False
    outside: Outside = "clip"
    output: str | None = None
    reviewed: Reviewed = True
    domain: Domain = "public"
    at_most: int = 0
    provenance: Provenance | None = None
    points: tuple[int, ...] | tuple[float, ...] = ()
    special: tuple[str | int | float, ...] = ()
    step: int | float | None = None
    clip: int | float | None = None
    texts: tuple[str, str] | tuple[()] = ()
    format: str | None = None
    ordered: bool = False
    weight: float = 1.0
    part_of: str | None = None
    prefix: int = 0
    length: int = 0
    words: Words = NO_WORDS

    @property
    def axis(self) -> Axis:
        """What the values lie on: how numbers of this kind are read and written."""
        return AXES[self.kind]

    @property
    def column(self) -> str:
        """The name of the column that holds its values."""
        return self.part_of or self.name

    @property
    def note(self) -> str:
        """What its levels leave out of a value, in a sentence; empty for most."""
        part = "" if self.part_of is None else f"Part of column '{self.part_of}'."
        return f"The first {self.prefix} characters of each code; the rest is left out." if self.prefix else part

    @property
    def binned(self) -> bool:
        """Whether levels are bins and points of numbers, rather than categories or truth values."""
        return self.axis.binned

    @property
    def boolean(self) -> bool:
        """Whether values are true and false."""
        return self.kind == "boolean"

    @property
    def categorical(self) -> bool:
        """Whether values are listed."""
        return self.kind == "categorical"

    @property
    def private(self) -> bool:
        """Whether a release has to find the levels."""
        return self.domain == "private"

    @property
    def n_values(self) -> int:
        """The number of levels before `special`: categories, bins with points, or false and true."""
        if self.categorical:
            return self.at_most if self.private else len(self.values)
        return 2 if self.boolean else self.n_bins + len(self.points)

    @property
    def n_bins(self) -> int:
        """The number of bins of a number, without its points; 0 for categories and booleans."""
        return 0 if not self.binned else self.at_most if self.private else len(self.edges) - 1

    @cached_property
    def n_levels(self) -> int:
        """The number of all levels, which is the size of this attribute's one-way table."""
        return self.n_values + len(self.special) + (self.missing is not None) + self.other

    @cached_property
    def bin_codes(self) -> Ints:
        """The code of each bin, shape (bins,), read-only."""
        before = [bisect_right(self.points, edge) for edge in self.edges[:-1]]
        return read_only(np.arange(len(before)) + np.array(before, dtype=np.int64))

    @cached_property
    def point_codes(self) -> Ints:
        """The code of each point, shape (points,), read-only."""
        before = [bisect_left(self.edges, point) for point in self.points]
        return read_only(np.arange(len(before)) + np.array(before, dtype=np.int64))

    @property
    def special_codes(self) -> range:
        """The code of each special value."""
        return range(self.n_values, self.n_values + len(self.special))

    @cached_property
    def special_numbers(self) -> tuple[int | float | None, ...]:
        """Each special value as a number on the attribute's axis; None for those that are none, and without an axis."""
        return tuple(self.number_of(str(value)) for value in self.special)

    @cached_property
    def apart(self) -> tuple[int | float, ...]:
        """The numbers on the axis that no bin holds, ascending: points and special numbers."""
        return tuple(sorted({*self.points, *(number for number in self.special_numbers if number is not None)}))

    @property
    def missing_code(self) -> int | None:
        """The level of nulls, empty texts and the missing text; None when the schema declares none."""
        return None if self.missing is None else self.n_values + len(self.special)

    @cached_property
    def missing_number(self) -> int | float | None:
        """The missing text as a number on the attribute's axis (-1, 999, 9999-12-31), None when it is none."""
        return self.number_of(self.missing or "")

    @property
    def other_code(self) -> int | None:
        """The level of categories that are not listed; None when the schema declares none."""
        return self.n_levels - 1 if self.other else None

    @property
    def exhaustive(self) -> bool:
        """Whether every value has a level: where only one of `missing` and `other` is declared, it takes both."""
        return self.missing is not None or self.other

    @property
    def known_from(self) -> Literal["public", "found", "rows"]:
        """Where the levels come from: public knowledge, noisy counts (found, or to be found), or the rows."""
        return "found" if self.domain != "public" else self.provenance or "public"

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """A name for each level, unique within the attribute, in code order."""
        if self.private:
            named = [f"(to be found {number})" for number in range(1, self.n_values + 1)]
        elif self.boolean:
            named = list(self.texts or ("false", "true"))
        elif self.categorical:
            named = [str(value) for value in self.values]
        else:
            named = [""] * self.n_values
            for code, (low, high) in zip(self.bin_codes.tolist(), pairwise(self.edges), strict=True):
                one = self.kind in ("integer", "year", "yearmonth", "weekday") and high - low == 1
                interval = f"{'(' if low in self.points else '['}{self.axis.text(low)}, {self.axis.text(high)})"
                named[code] = self.axis.text(low) if one else interval
            for code, point in zip(self.point_codes.tolist(), self.points, strict=True):
                named[code] = self.axis.text(point) + (" or more" if point == self.clip else "")
        missing = () if self.missing is None else (self.missing or "(missing)",)
        return (*named, *map(str, self.special), *missing, *(("other",) if self.other else ()))

    def number_of(self, text: str) -> int | float | None:
        """The number on the attribute's axis that a text in a schema or a question stands for, else None."""
        # A number in a schema or a question is written plainly: 1.234 is no 1234, whatever the table's signs.
        first, second = (None, self.format) if self.axis.numeric else (self.format, None)
        number = self.axis.parse(text, first)
        return self.axis.parse(text, second) if number is None else number

    def read(self, text: str, *, plain: bool = False) -> int | float | None:
        """The number on the axis that a text of the column stands for, else None; a `plain` one has no format."""
        axis = self.axis if self.part_of is None else AXES["datetime"]
        number = axis.parse(text, None if plain else self.format)
        return number if number is None or axis is self.axis else PARTS[self.kind](number)

    def cut(self, code: str) -> str:
        """What is measured of a code: all of it, or its prefix. A text as long as the prefix is one already."""
        if not self.prefix or len(code) == self.prefix:
            return code
        return (code.zfill(self.length) if code.isdecimal() else code)[: self.prefix]

    def truth_of(self, text: str) -> int | None:
        """The code of the truth value that a text stands for, else None.

        With `texts` of its own, an attribute reads these, true and false, and nothing else: 1 may be no and 2 yes.
        """
        if not self.boolean:
            return None
        text = text.strip()
        if text in self.texts:
            return self.texts.index(text)
        return ({"false": 0, "true": 1} if self.texts else _TRUTHS).get(text.lower())

    def code_named(self, text: str) -> int | None:
        """The code of the level that a text names, or whose truth value it stands for."""
        return self.levels.index(text) if text in self.levels else self.truth_of(text)

    def within(self, number: float) -> bool:
        """Whether a number lies in a bin or on a point, and not outside of the domain."""
        return self.edges[0] <= number < self.edges[-1] or (self.axis.continuous and number == self.edges[-1])

    def bin_of(self, number: float) -> int:
        """The place of the bin that holds a number, or of the nearest one."""
        return min(max(bisect_right(self.edges, number) - 1, 0), self.n_bins - 1)

    def code_at(self, number: float) -> int | None:
        """The code of a number: of the special value or point that it is, or of its bin; None outside the edges."""
        if number in self.special_numbers:
            return self.special_codes[self.special_numbers.index(number)]
        if number in self.points:
            return int(self.point_codes[self.points.index(number)])
        inside = bool(self.edges) and self.edges[0] <= number <= self.edges[-1]
        return int(self.bin_codes[self.bin_of(number)]) if inside else None

    def one_step(self, place: int) -> bool:
        """Whether the bin at this place holds one whole step of its axis and nothing else: a year, a day."""
        return self.axis.stepped and self.edges[place + 1] - self.edges[place] == 1


def repeated(texts: Iterable[str]) -> str | None:
    """The first text that occurs more than once, or None when all differ."""
    return next((text for text, times in Counter(texts).items() if times > 1), None)


def refuse(*checks: tuple[object, str]) -> None:
    """Raise the first message whose condition holds."""
    for wrong, message in checks:
        if wrong:
            raise SchemaError(message)


@contextmanager
def within(where: str) -> Iterator[None]:
    """Errors that are raised within begin with where: with the entry of the schema that they are about."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{where}{error}") from None
