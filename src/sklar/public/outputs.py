"""Which type a released column has, by public knowledge: the schema's `output`, never the rows. More:
docs/derivations.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sklar.machine.wording import stated
from sklar.public.axis import DAY, SECOND, SERIAL

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from sklar.public.attribute import Attribute

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_UNITS = {"time32": ("s", "ms"), "time64": ("us", "ns"), "duration": tuple(TICKS), "timestamp": tuple(TICKS)}
_SETTINGS = re.compile(r"(\w+)(?:\((\d{1,2}), ?(\d{1,2})\)|\[(s|ms|us|ns)(?:, ?tz=([A-Za-z0-9_+/:-]+))?\])", re.ASCII)
_PLAIN = ("bool", "string", "category", "ordered category", "float32", "float64", "date32", "date64", *WHOLE)
_HELD, _USUAL = (stated("sklar.public", "types.toml")[table] for table in ("held", "plain"))
_EXACT = {"float32": 2**24, "float64": 2**53}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column type, taken apart: `name` without its settings, and the settings of a decimal, a moment or a time."""

    name: str
    precision: int = 0
    scale: int = 0
    unit: str = ""
    zone: str | None = None

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        zone = "" if self.zone is None else f", tz={self.zone}"
        return f"{self.name}[{self.unit}{zone}]" if self.unit else self.name


def parse_output(text: str) -> Output | None:
    """The type that a text stands for, else None."""
    parts = _SETTINGS.fullmatch(text)
    if parts is None:
        return Output(name=text) if text in _PLAIN else None
    name, unit, zone = parts[1], parts[4] or "", parts[5]
    precision, scale = int(parts[2] or 0), int(parts[3] or 0)
    timed = unit in _UNITS.get(name, ()) and (zone is None or name == "timestamp")
    fits = scale <= precision in range(1, 39) if name == "decimal" else timed
    return Output(name=name, precision=precision, scale=scale, unit=unit, zone=zone) if fits else None


def plain_output(attribute: Attribute) -> Output:
    """The type of a released column whose schema states none; of a category, that of its values."""
    if special_texts(attribute) or attribute.texts or attribute.format not in (None, SERIAL):
        return Output(name="string")
    if attribute.format == SERIAL:
        return Output(name="int64")
    # With other = true a released value may be the text 'other'.
    if attribute.categorical and not attribute.other and isinstance(attribute.values[0], int):
        return Output(name="int64")
    return cast(Output, parse_output(_USUAL[attribute.kind]))


def output_of(attribute: Attribute) -> Output:
    """The type of a released column: the schema's, else the plain one."""
    stated = parse_output(attribute.output or "")
    return stated or (Output(name="ordered category") if attribute.ordered else plain_output(attribute))


def special_texts(attribute: Attribute) -> tuple[str, ...]:
    """The special values that a column of the attribute's numbers, dates or truth values could not hold."""
    special = zip(attribute.special, attribute.special_numbers, strict=True)
    return tuple(value for value, number in special if number is None and isinstance(value, str))


def misfit(output: Output, attribute: Attribute) -> str | None:
    """Why a column of this type cannot hold every value of a domain, as the end of a sentence; None when it can."""
    name, kind, texts = output.name, attribute.kind, special_texts(attribute)
    held_by = {"string", *(each for held in _HELD[kind] for each in (WHOLE if held == "whole" else (held,)))}
    if name not in held_by:
        return f"does not hold {attribute.axis.one}; use one of {', '.join(sorted(held_by))}"
    if texts and name not in ("string", "category", "ordered category") and kind != "categorical":
        return f"does not hold the special text '{texts[0]}'; use string"
    if name in WHOLE:
        return _whole_misfit(name, attribute)
    if name == "decimal":
        return _decimal_misfit(output, attribute)
    if name in _EXACT and kind == "integer":
        largest = max(map(abs, (*attribute.edges, *attribute.apart)))
        return None if largest <= _EXACT[name] else f"holds whole numbers exactly up to {_EXACT[name]} only"
    if name == "float32":
        return _float32_misfit(attribute)
    return _timed_misfit(output, attribute) if output.unit else None


def _whole_misfit(name: str, attribute: Attribute) -> str | None:
    values, texts = attribute.values, attribute.texts
    held: tuple[Any, ...] = (*(values or (0, 1)), *attribute.special)
    if attribute.categorical and (attribute.other or not all(isinstance(value, int) for value in held)):
        return "holds whole numbers only, not texts and not 'other'"
    if texts:
        held = tuple(int(text) for text in texts if re.fullmatch("0|-?[1-9][0-9]{0,18}", text))
        if len(held) < 2:
            return f"does not hold the texts {' and '.join(texts)}; use string or bool"
    if attribute.edges:
        held = (attribute.edges[0], attribute.edges[-1] - 1, *attribute.apart)
    bounds = np.iinfo(name)
    return None if bounds.min <= min(held) and max(held) <= bounds.max else f"holds {bounds.min} to {bounds.max} only"


def _decimal_misfit(output: Output, attribute: Attribute) -> str | None:
    stated = (attribute.edges, attribute.apart, () if attribute.step is None else (attribute.step,))
    edges, apart, stepped = ([exact(number) * 10**output.scale for number in each] for each in stated)
    if any(unit.denominator != 1 for unit in (*edges, *apart, *stepped)):
        return f"needs edges of at most {output.scale} digits after the point"
    # The last edge is in no bin.
    low, high = min([edges[0], *apart]), max([edges[-1] - 1, *apart])
    if max(-low, high) >= 10**output.precision:
        return f"holds {output.precision} digits and no more"
    # Drawn as whole units of 64 bits.
    return None if -low < 2**63 and high + 1 < 2**63 else "holds edges of up to 18 digits only"


def _float32_misfit(attribute: Attribute) -> str | None:
    largest = float(np.finfo(np.float32).max)
    if max(map(abs, (*attribute.edges, *attribute.apart))) > largest:
        return f"holds numbers up to {largest:.4g} only"
    inexact = [number for number in attribute.apart if float(np.float32(number)) != number]
    if inexact:
        return f"does not hold {inexact[0]} exactly; use float64"
    empty = next(((low, high) for low, high in pairwise(attribute.edges) if not least_float32(low) < high), None)
    return None if empty is None else f"has no number between {empty[0]} and {empty[1]}; use wider bins"


def _timed_misfit(output: Output, attribute: Attribute) -> str | None:
    day = DAY if attribute.kind == "date" else 1
    moments = [edge * day for edge in (*attribute.edges, *attribute.apart)]
    if output.unit == "ns" and max(map(abs, moments)) > (2**63 - 1) // 1_000:
        return "holds the years 1678 to 2262 only" if output.name == "timestamp" else "holds 292 years only"
    stepped = [] if attribute.step is None or day > 1 else [exact(attribute.step) * SECOND]
    if any(moment % TICKS[output.unit] for moment in (*moments, *stepped)):
        return f"needs edges of whole {output.unit}"
    if output.zone is None or re.fullmatch(r"[+-]\d\d:\d\d", zone := output.zone):
        return None
    from zoneinfo import ZoneInfo

    # A machine without a list of time zones refuses none.
    for key in (zone, "Europe/London"):
        try:
            ZoneInfo(key)
        except (KeyError, ValueError, OSError):
            continue
        return None if key == zone else f"names no time zone '{zone}'; use a name such as Europe/Berlin, or UTC"
    return None


def whole_seconds(attribute: Attribute) -> bool:
    """Whether moments are drawn without fractions of a second: where no edge, no point and no step has any."""
    if not attribute.axis.timed:
        return True
    stepped = attribute.step is None or exact(attribute.step).denominator == 1
    return stepped and not any(edge % SECOND for edge in (*attribute.edges, *attribute.apart))


def grain(attribute: Attribute) -> Fraction | None:
    """The unit of which numbers drawn inside a bin are multiples, on the attribute's axis; None where there is none."""
    if attribute.step is not None:
        return exact(attribute.step) * (SECOND if attribute.axis.timed else 1)
    output = output_of(attribute)
    if attribute.axis.timed:
        # No finer than the edges, and no finer than the format can write.
        finest = SECOND if whole_seconds(attribute) else TICKS[output.unit] if output.unit else 1
        return max(Fraction(finest), attribute.axis.told(attribute.format) or Fraction(0))
    if not attribute.axis.continuous:
        return Fraction(1)
    return Fraction(1, 10**output.scale) if output.name == "decimal" else attribute.axis.told(attribute.format)


def spread(attribute: Attribute) -> bool:
    """Whether some bin holds more than one number, so that levels do not tell where numbers lie."""
    unit = grain(attribute) if attribute.binned else None
    return attribute.binned and any(unit is None or high - low > unit for low, high in pairwise(attribute.edges))


def exact(number: float) -> Fraction:
    """A number as it is written: 0.1 is a tenth."""
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))


def multiples(numbers: Iterable[float], unit: Fraction) -> list[int]:
    """For each number, how many units the least multiple has that is not below it."""
    return [ceil(number if unit == 1 else exact(number) / unit) for number in numbers]


def least_float32(low: float) -> float:
    """The least single-precision number that is not below a number."""
    near = np.float32(low)
    return float(near if float(near) >= low else np.nextafter(near, np.float32(np.inf)))


def polars_type(output: Output) -> pl.DataType:
    """The polars type nearest to an output, for all but categories, whose values decide theirs."""
    import polars as pl

    if output.name == "decimal":
        return pl.Decimal(output.precision, output.scale)
    unit: Any = "ms" if output.unit == "s" else output.unit
    if output.name == "timestamp":
        return pl.Datetime(unit, None if output.zone is None else _polars_zone(output.zone))
    if output.name == "duration":
        return pl.Duration(unit)
    names = {"bool": "Boolean", "date32": "Date", "date64": "Date", "time32": "Time", "time64": "Time"}
    name = names.get(output.name, output.name.capitalize().replace("Uint", "UInt"))
    return cast("pl.DataType", getattr(pl, name)())


@lru_cache(maxsize=256)
def _polars_zone(zone: str) -> str | None:
    """The name that polars has for a time zone; UTC if it has none."""
    import polars as pl

    try:
        kind = pl.Series([0], dtype=pl.Datetime("us", zone)).dtype
    except pl.exceptions.PolarsError:
        return "UTC"
    return kind.time_zone if isinstance(kind, pl.Datetime) else None


def arrow_type(output: Output) -> pa.DataType:
    """The Arrow type that a text stands for, for all but categories, whose values decide theirs."""
    import pyarrow as pa

    if output.name == "decimal":
        return pa.decimal128(output.precision, output.scale)
    if output.name == "timestamp":
        return pa.timestamp(output.unit, output.zone)
    if output.unit:
        return getattr(pa, output.name)(output.unit)
    return getattr(pa, {"bool": "bool_"}.get(output.name, output.name))()
