"""Codes to values of the original columns and types.

Categories, points and special values come back as listed, missing as null, other numbers inside their bin by its shape,
or evenly; never a point. Columns with special texts among numbers are text. A column has the type that the schema's
`output` states, or the nearest that polars has (`public.outputs`), else the plain type of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.machine.extras import lazily
from sklar.public.axis import DAY, SERIAL, SERIAL_ZERO, number_format
from sklar.public.outputs import exact, grain, multiples, output_of, plain_output, polars_type, whole_seconds
from sklar.public.schema import Attribute, Schema

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazily("polars")

_SECONDS = "%Y-%m-%d %H:%M:%S"
_ISO = {"date": "%Y-%m-%d", "datetime": _SECONDS, "time": "%H:%M:%S", "yearmonth": "%Y-%m"}
_FRACTIONS = {"ms": "%.3f", "us": "%.6f", "ns": "%.9f"}
# Draws of a number that come out as one that stands apart, before the next beside it is taken.
_REDRAWN = 8
# As wide as any: what a decimal is before its precision is checked.
_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounding:
    """To what numbers are rounded, by how many digits they have.

    In grains: `steps`, shape (s,), are what they may be multiples of, each a multiple of the one before it, and `kept`
    numbers that are common as they are. `upto`, shape (digits, s), are cumulative chances of the steps.
    """

    grain: Fraction
    steps: Ints
    upto: Doubles
    kept: Ints

    def round(
        self, units: Ints, low: Ints, high: Ints, generator: np.random.Generator
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Numbers of grains rounded down in their bins, from `low` up to but without `high`, and which are final.

        Up where the bin begins above, but to no step that is larger than the number: a finer one is taken then.
        """
        digits = np.searchsorted(10 ** np.arange(19, dtype=np.int64), np.abs(units), side="right")
        chances = self.upto[np.minimum(digits, self.upto.shape[0] - 1)]
        chosen = (generator.random(units.size)[:, None] >= chances).sum(axis=1)
        done, rounded = np.isin(units, self.kept), units.copy()
        chosen[done] = 0
        for index in range(self.steps.size - 1, 0, -1):
            rows, step = np.flatnonzero(chosen == index), int(self.steps[index])
            first, down = -(-low[rows] // step) * step, units[rows] // step * step
            kept = (down >= first) | ((first < high[rows]) & (np.abs(units[rows]) >= step))
            rounded[rows[kept]], done[rows[kept]] = np.maximum(down, first)[kept], True
            chosen[rows[~kept]] = index - 1
        return rounded, done


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """How the numbers of one attribute lie inside its bins.

    `bins`, shape (b,), says for each bin from which one its numbers are drawn: another one where noise alone filled it.
    `places` are numbers on the axis and `heights` what the distribution function reaches there: the number of the bin,
    from 0 on, and the share of the bin's rows below. Both ascend, shape (k,); between them the function is straight.
    For drawing alone, `inside` says so of outer bins of public edges, where their own mean matters to inference.
    `means`, shape (b,), are those inside bins as far as they are known, and `errors` their standard errors.
    """

    bins: Ints
    heights: Doubles
    places: Doubles
    rounding: Rounding | None = None
    means: Doubles | None = None
    errors: Doubles | None = None
    inside: Ints | None = None

    @property
    def ends(self) -> tuple[Doubles, Doubles]:
        """Between which places the numbers of each bin are drawn, shape (b,) each: its last edge may lie far beyond."""
        first = np.searchsorted(self.heights, self.bins, side="right") - 1
        return self.places[first], self.places[np.searchsorted(self.heights, self.bins + 1)]

    @property
    def variances(self) -> Doubles:
        """The variance of the numbers that are drawn in each bin, shape (b,)."""
        lows, highs, masses = self.places[:-1], self.places[1:], np.diff(self.heights)
        bins = np.floor(self.heights[:-1] + masses / 2).astype(np.int64)
        first = np.bincount(bins, masses * (lows + highs) / 2)[self.bins]
        second = np.bincount(bins, masses * (lows**2 + lows * highs + highs**2) / 3)[self.bins]
        return np.asarray(np.maximum(second - first**2, 0.0))

    def masses(self, edges: Ints) -> Doubles:
        """The share that each whole number has of its bin, from the first edge up to without the last."""
        upto = np.interp(np.arange(edges[0], edges[-1] + 1), self.places, self.heights)
        return np.asarray(np.diff(upto))

    def draw(self, bins: NDArray[np.integer[Any]], generator: np.random.Generator) -> Doubles:
        """A number on the axis in each of these bins; rounding errors may put it on an edge."""
        return np.interp(bins + generator.random(bins.size), self.heights, self.places)

    def divided(self, edges: Doubles, finer: Doubles) -> tuple[Shape, Doubles]:
        """The shape of finer bins, whose edges hold all of the shape's, and the share that each has of its whole bin.

        Every number is then drawn inside its own bin, also where noise alone filled it.
        """
        within = np.searchsorted(edges, finer[:-1], side="right") - 1
        places, heights, shares = [], [], np.empty(finer.size - 1)
        for index, (bin_, low, high) in enumerate(zip(within, finer[:-1], finer[1:], strict=True)):
            own = (self.places >= edges[bin_]) & (self.places <= edges[bin_ + 1])
            own &= (self.heights >= bin_) & (self.heights <= bin_ + 1)
            inside = self.places[own & (self.places > low) & (self.places < high)]
            at = np.unique(np.concatenate([[low], inside, [high]]))
            reached = np.interp(at, self.places[own], self.heights[own] - bin_)
            reached[at <= edges[bin_]], reached[at >= edges[bin_ + 1]] = 0.0, 1.0
            share = shares[index] = reached[-1] - reached[0]
            places.append(at if share > 0 else np.array([low, high]))
            heights.append(index + ((reached - reached[0]) / share if share > 0 else np.array([0.0, 1.0])))
        joined = {"heights": np.concatenate(heights), "places": np.concatenate(places)}
        return Shape(bins=np.arange(shares.size), rounding=self.rounding, **joined), shares


def column_type(attribute: Attribute) -> pl.DataType:
    """The type of a released column."""
    output, plain = output_of(attribute), plain_output(attribute)
    if output.name == "ordered category":
        return pl.Enum([str(value) for value in released_values(attribute)])
    if output.name == "category":
        return pl.Categorical() if plain.name == "string" else polars_type(plain)
    return polars_type(output)


def released_values(attribute: Attribute) -> list[Any]:
    """The values of a categorical attribute that a row may have, in order: those listed, special ones, then 'other'."""
    values = [*attribute.values, *attribute.special]
    if plain_output(attribute).name == "string":
        return [str(value) for value in values] + ["other"] * attribute.other
    return values


def record_schema(schema: Schema) -> pl.Schema:
    """Names and types of the columns of released records."""
    return pl.Schema({attribute.name: column_type(attribute) for attribute in schema.released})


def dummy_schema(schema: Schema) -> pl.Schema:
    """Names and types of the paper's dummies: 0/1 columns named `attribute=level`."""
    return pl.Schema(dict.fromkeys(schema.dummy_names, pl.UInt8()))


class Decoder:
    """Decodes blocks of codes. With `enums`, listed texts are held as an Enum, several times as fast to write."""

    def __init__(self, schema: Schema, *, shapes: Mapping[str, Shape] | None = None, enums: bool = False) -> None:
        self.columns, held = record_schema(schema), shapes or {}
        axes = [AxisDecoder(each, held.get(each.name)) if each.binned else None for each in schema.attributes]
        # By column: the codes that it is made of, and what makes it.
        self._made = [
            (own, _PartsDecoder(whole, [axes[place] for place in own])) if len(own) > 1 else (own[0], axes[own[0]])
            for whole, own in zip(schema.released, map(list, schema.columns.values()), strict=True)
        ]
        listed = {attribute.name: _listed(attribute) for attribute in schema.released if not attribute.binned}
        # Booleans that are never missing are packed into bits for all columns at once.
        never_missing = [attribute.boolean and attribute.missing is None for attribute in schema.released]
        self._packed = np.array(never_missing) & [kind == pl.Boolean for kind in self.columns.dtypes()]
        if enums:
            texts = {name: values for name, values in listed.items() if values.dtype == pl.String}
            listed |= {name: values.cast(pl.Enum(values.drop_nulls())) for name, values in texts.items()}
            self.columns |= {name: listed[name].dtype for name in texts}
        # By place: a name such as * would be a pattern.
        self._looked_up = [
            pl.lit(listed[name]).gather(pl.nth(index)).alias(name)
            for index, name in enumerate(self.columns)
            if name in listed and not self._packed[index]
        ]

    def decode(self, codes: Codes, generator: np.random.Generator) -> pl.DataFrame:
        """Records of these codes, shape (m, rows)."""
        rows, columns = codes.shape[1], []
        packed = codes if self._packed.all() else codes[[place for place, _ in compress(self._made, self._packed)]]
        bits = pl.Series(np.ascontiguousarray(packed).ravel()).cast(pl.Boolean)
        begins = iter(range(0, len(bits), rows or 1))
        for name, (places, numbers), is_packed in zip(self.columns, self._made, self._packed, strict=True):
            if is_packed:
                column = bits.slice(next(begins, 0), rows)
            else:
                column = pl.Series(codes[places]) if numbers is None else numbers.decode(codes[places], generator)
            columns.append(column.alias(name))
        frame = pl.DataFrame(columns)
        # All columns in one go: asking polars costs as much as looking up a short column.
        return frame.with_columns(self._looked_up) if self._looked_up else frame


def decode_dummies(dummies: NDArray[np.bool_], schema: Schema) -> pl.DataFrame:
    """A frame of 0/1 columns from dummies of shape (d, rows)."""
    return pl.DataFrame(
        [pl.Series(name, row) for name, row in zip(schema.dummy_names, dummies.view(np.uint8), strict=True)]
    )


def _listed(attribute: Attribute) -> pl.Series:
    """The value of every code of a categorical or boolean attribute, in a column of its type."""
    kind = column_type(attribute)
    if attribute.boolean:
        values: list[Any] = [False, True]
        if kind == pl.String:
            values = [*(attribute.texts or ("false", "true")), *attribute.special]
        elif kind != pl.Boolean and attribute.texts:
            values = [int(text) for text in attribute.texts]
    else:
        values = released_values(attribute)
    if attribute.missing_code is not None:
        values.insert(attribute.missing_code, None)
    texts = isinstance(kind, pl.Enum | pl.Categorical)
    return pl.Series([None if value is None else str(value) for value in values] if texts else values).cast(kind)


class AxisDecoder:
    """Decodes codes of an attribute on an axis. With a grain, numbers are multiples of it, in units of the column."""

    def __init__(self, attribute: Attribute, shape: Shape | None = None) -> None:
        self.attribute, self._kind, self._shape = attribute, column_type(attribute), shape
        self._edges, self._grain, output = np.asarray(attribute.edges), grain(attribute), output_of(attribute)
        self._single = output.name == "float32"
        self._unit = Fraction(1, 10**output.scale)
        special = list(zip(attribute.special_codes, attribute.special, attribute.special_numbers, strict=True))
        numbers = dict(zip(attribute.point_codes.tolist(), attribute.points, strict=True))
        numbers |= {code: number for code, _, number in special if number is not None}
        self._texts = {code: str(value) for code, value, number in special if number is None}
        # By code: the bin to draw from, and the number that stands in place of what is drawn.
        self._bins = np.zeros(attribute.n_levels, dtype=np.int64)
        self._bins[attribute.bin_codes] = np.arange(attribute.n_bins)
        self._stands = np.isin(np.arange(attribute.n_levels), list(numbers))
        self._floats = attribute.axis.continuous and output.name != "decimal"
        self._numbers = np.zeros(attribute.n_levels, dtype=np.float64 if self._floats else np.int64)
        held = numbers.values() if self._floats else [int(exact(number) / self._unit) for number in numbers.values()]
        self._numbers[list(numbers)] = list(held)
        self._low, self._high = self._edges[:-1], self._edges[1:]
        if self._grain is not None:
            # Bins as ranges of multiples of the grain, and the numbers that stand apart.
            counted = np.array(multiples(attribute.edges, self._grain))
            self._low, self._high = counted[:-1], counted[1:]
            shares = [exact(number) / self._grain for number in attribute.apart]
            self._taken = np.array([int(share) for share in shares if share.denominator == 1], dtype=np.int64)

    def decode(self, codes: Codes, generator: np.random.Generator) -> pl.Series:
        """Values of these codes, shape (rows,)."""
        attribute = self.attribute
        values = self.typed(pl.Series(self.numbers(codes, generator)))
        for code, text in self._texts.items():
            values = values.set(pl.Series(codes == code), text)
        return values if attribute.missing is None else values.set(pl.Series(codes == attribute.missing_code), None)

    def numbers(self, codes: Codes, generator: np.random.Generator) -> NDArray[Any]:
        """Numbers in units of the column, any number for codes that have none, shape (rows,)."""
        attribute = self.attribute
        drawn = self._draw(codes if attribute.n_bins == attribute.n_levels else self._bins[codes], generator)
        return np.where(self._stands[codes], self._numbers[codes], drawn) if self._stands.any() else drawn

    def _draw(self, bins: Codes, generator: np.random.Generator) -> NDArray[Any]:
        if self._shape is not None:
            bins = (self._shape.bins if self._shape.inside is None else self._shape.inside)[bins]
        low, high = self._low[bins], self._high[bins]
        if self._grain is not None:
            counted = self._count(bins, self._grain, generator)
            times = self._grain / self._unit
            if not self._floats:
                return counted if times == 1 else counted * int(times)
            # The quotient of whole numbers is the float nearest to the multiple, and no other.
            steps = counted * times.numerator / times.denominator
            return _single(steps, self._edges[bins], self._edges[bins + 1]) if self._single else steps
        if self._shape is None:
            share = generator.random(bins.size)
            # Not low + (high - low) * share: the difference may overflow.
            drawn = _short(low * (1 - share) + high * share, self._edges)
        else:
            drawn = self._rounded(bins, self._shape.draw(bins, generator), self._shape.rounding, generator)
        # Rounding may leave the bin; the upper edge belongs to the next.
        drawn = np.clip(drawn, low, np.nextafter(high, low))
        held = _single(drawn, low, high) if self._single else drawn
        return _beside(held, low, high, self.attribute.apart) if self.attribute.apart else held

    def _count(self, bins: Codes, grain: Fraction, generator: np.random.Generator) -> Ints:
        """Multiples of the grain inside these bins, by their shape where there is one, none that stands apart."""
        counted, again = np.empty(bins.size, dtype=np.int64), np.arange(bins.size)
        for _ in range(_REDRAWN):
            own, first, last = bins[again], self._low[bins[again]], self._high[bins[again]]
            if self._shape is None:
                placed = generator.integers(first, last)
            else:
                placed = np.floor(self._shape.draw(own, generator) / float(grain)).astype(np.int64)
                placed = np.clip(placed, first, last - 1)
                if self._shape.rounding is not None:
                    placed, _ = self._shape.rounding.round(placed, first, last, generator)
            counted[again] = placed
            again = again[np.isin(placed, self._taken)]
            if not again.size:
                break
        return np.asarray(_beside(counted, self._low[bins], self._high[bins], self._taken)) if again.size else counted

    def _rounded(
        self, bins: Codes, placed: Doubles, rounding: Rounding | None, generator: np.random.Generator
    ) -> Doubles:
        """Numbers without a grain, rounded as often as the shape says, else to few digits."""
        short = _short(placed, self._edges)
        if rounding is None:
            return short
        top, bottom = float(rounding.grain.denominator), float(rounding.grain.numerator)
        low, high = (np.ceil(each * top / bottom - 1e-6).astype(np.int64)[bins] for each in (self._low, self._high))
        units = np.clip(np.floor(placed * top / bottom).astype(np.int64), low, np.maximum(high - 1, low))
        rounded, done = rounding.round(units, low, high, generator)
        return np.where(done, rounded * bottom / top, short)

    def column(self, numbers: Ints) -> pl.Series:
        """Whole numbers on the axis as a column of the attribute's type."""
        return self.typed(pl.Series(numbers * int(1 / self._unit)))

    def typed(self, drawn: pl.Series) -> pl.Series:
        """Numbers as a column of the attribute's type."""
        kind, attribute = self._kind, self.attribute
        if isinstance(kind, pl.Decimal):
            # The product of decimals is exact: no unit is lost to rounding.
            unit = pl.Series([Decimal(1).scaleb(-kind.scale)], dtype=pl.Decimal(_DIGITS, kind.scale))
            return (drawn.cast(pl.Decimal(_DIGITS, 0)) * unit).cast(kind)
        if not attribute.axis.numeric:
            return self._timed(drawn)
        if attribute.format is not None and kind == pl.String:
            return pl.Series(map(number_format(attribute.format).text, drawn.to_list()), dtype=pl.String)
        if attribute.axis.continuous and kind == pl.String:
            return _column(float_texts(pl.lit(drawn)))
        return drawn.cast(kind)

    def _timed(self, drawn: pl.Series) -> pl.Series:
        """Days, months or microseconds as a column of the attribute's type."""
        kind, attribute = self._kind, self.attribute
        if isinstance(kind, pl.Datetime):
            counted = drawn * DAY if attribute.kind == "date" else drawn
            # A number is a moment in UTC, whatever the zone it is shown in.
            return counted.cast(pl.Datetime("us", kind.time_zone)).cast(kind)
        if attribute.kind == "yearmonth":
            months = pl.lit(drawn)
            held = _column(pl.date(months // 12, months % 12 + 1, 1))
        elif attribute.kind == "date":
            held = drawn.cast(pl.Int32).cast(pl.Date)
        elif attribute.kind == "time":
            held = (drawn * 1_000).cast(pl.Time)
        else:
            held = drawn.cast(pl.Duration("us") if attribute.kind == "duration" else pl.Datetime("us"))
        if kind != pl.String:
            return _column(written_texts(pl.lit(held), SERIAL)).cast(kind) if kind == pl.Int64 else held.cast(kind)
        seconds = whole_seconds(attribute)
        if attribute.kind == "duration":
            return _column(clock_texts(pl.lit(held), held.dtype, seconds=seconds))
        written = attribute.format or _ISO[attribute.kind] + ("" if seconds else "%.6f")
        return _column(written_texts(pl.lit(held), written))


class _PartsDecoder:
    """Decodes the parts of a column: a day, moved to the drawn weekday, and a time. Its date says whether it misses."""

    def __init__(self, whole: Attribute, parts: Sequence[Any]) -> None:
        self._whole, self._parts = AxisDecoder(whole), {part.attribute.kind: part for part in parts}

    def decode(self, codes: Codes, generator: np.random.Generator) -> pl.Series:
        """Values of these codes, shape (parts, rows)."""
        own, dates = dict(zip(self._parts, codes, strict=True)), self._parts["date"].attribute
        drawn = {kind: part.numbers(own[kind], generator) for kind, part in self._parts.items()}
        days = _moved(drawn["date"], drawn["weekday"], dates) if "weekday" in drawn else drawn["date"]
        values = self._whole.typed(pl.Series(days * DAY + drawn["time"] if "time" in drawn else days))
        return values if dates.missing is None else values.set(pl.Series(own["date"] == dates.missing_code), None)


def _moved(days: Ints, weekdays: Ints, dates: Attribute) -> Ints:
    """The days, each moved to the nearest one of its bin that has its weekday and is no point; points stay."""
    edges, moved = np.asarray(dates.edges), days.copy()
    bins = np.clip(np.searchsorted(edges, days, side="right") - 1, 0, dates.n_bins - 1)
    left = ~np.isin(days, dates.points)
    # 1970-01-01, which is day 0, was a Thursday.
    nearest = days + (weekdays - days) % 7 - 3
    for week in (0, -7, 7, -14, 14):
        there = nearest + week
        fits = left & (there >= edges[bins]) & (there < edges[bins + 1]) & ~np.isin(there, dates.points)
        moved[fits], left = there[fits], left & ~fits
    return moved


def _column(values: pl.Expr) -> pl.Series:
    return pl.select(values).to_series()


def _beside(drawn: NDArray[Any], low: NDArray[Any], high: NDArray[Any], apart: ArrayLike) -> NDArray[Any]:
    """The same numbers, those that stand apart moved to the next one of their bin that does not."""

    def after(numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers + 1 if numbers.dtype.kind == "i" else np.nextafter(numbers, numbers.dtype.type(np.inf))

    taken = np.flatnonzero(np.isin(drawn, apart))
    while taken.size:
        moved, first = after(drawn[taken]), low[taken].astype(drawn.dtype)
        first = np.where(first < low[taken], after(first), first)
        drawn[taken] = np.where(moved < high[taken], moved, first)
        taken = taken[np.isin(drawn[taken], apart)]
    return drawn


def _single(drawn: Doubles, low: Doubles, high: Doubles) -> Floats:
    """Single-precision numbers inside their bins."""
    single = drawn.astype(np.float32)
    single = np.where(single.astype(np.float64) >= high, np.nextafter(single, np.float32(-np.inf)), single)
    return np.where(single.astype(np.float64) < low, np.nextafter(single, np.float32(np.inf)), single)


def _short(drawn: Doubles, edges: Doubles) -> Doubles:
    """Four digits within the narrowest bin: more would suggest a precision that the bins do not have."""
    with np.errstate(over="ignore"):
        grid = 10.0 ** (4 - np.floor(np.log10(np.diff(edges).min())))
        exact = grid > 0 and np.abs(edges).max() * grid < 2**53
        return np.floor(drawn * grid) / grid if exact else drawn


def float_texts(values: pl.Expr) -> pl.Expr:
    """The shortest texts that are read as these numbers again; whole numbers have no point."""
    return values.cast(pl.String).str.strip_suffix(".0")


def moment_texts(values: pl.Expr, kind: pl.Datetime, *, zone: str | None = None, seconds: bool = False) -> pl.Expr:
    """ISO texts of moments of this type, in the zone that the schema states; `seconds` leaves fractions out.

    >>> kind = pl.Datetime("ms", "UTC")
    >>> noon = pl.lit(43_200_000).cast(kind)
    >>> [pl.select(moment_texts(noon, kind, zone=zone, seconds=True)).item() for zone in ("UTC", "+05:30")]
    ['1970-01-01 12:00:00Z', '1970-01-01 17:30:00+0530']
    """
    shown = _SECONDS if seconds else _SECONDS + _FRACTIONS[kind.time_unit]
    if zone == "UTC":
        return values.dt.to_string(shown + "Z")
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone or "")
    if offset:
        # polars does not know every offset; what it does not know is held in UTC.
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (-1 if offset[1] == "-" else 1)
        local = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None) + ahead
        return local.dt.to_string(f"{shown}{offset[1]}{offset[2]}{offset[3]}")
    return values.dt.to_string(shown if zone is None else shown + "%z")


def written_texts(values: pl.Expr, written: str, *, zoned: bool = False) -> pl.Expr:
    """Dates, moments or times of day in a format of strptime's letters; moments without a zone are in UTC."""
    if written == SERIAL:
        return (values.cast(pl.Date) - pl.lit(SERIAL_ZERO.date())).dt.total_days().cast(pl.String)
    if "%z" in written and not zoned:
        values = values.dt.replace_time_zone("UTC")
    # Polars has nine digits where Python has six.
    return values.dt.to_string(written.replace("%f", "%6f"))


def clock_texts(values: pl.Expr, kind: pl.DataType, *, seconds: bool) -> pl.Expr:
    """Times of day, or durations as hours, minutes and seconds, -0:00:01.500000; `seconds` leaves fractions out."""
    if kind == pl.Time:
        return values.dt.to_string("%H:%M:%S" if seconds else "%H:%M:%S%.6f")
    counted = values.dt.total_microseconds()
    size, whole = counted.abs(), counted.abs() // 1_000_000
    parts = [(whole // 3_600, 1), (whole // 60 % 60, 2), (whole % 60, 2)]
    clock = pl.concat_str([part.cast(pl.String).str.zfill(digits) for part, digits in parts], separator=":")
    if not seconds:
        clock = clock + pl.lit(".") + (size % 1_000_000).cast(pl.String).str.zfill(6)
    # In this order the result keeps the name of the column.
    return pl.when(counted >= 0).then(clock).otherwise(pl.lit("-") + clock)
