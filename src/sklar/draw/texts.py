"""Numbers, moments and durations as the texts that a release holds: in columns of texts, and in CSV files."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from sklar.machine.extras import lazily

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazily("polars")

_SECONDS = "%Y-%m-%d %H:%M:%S"
_FRACTIONS = {"ms": "%.3f", "us": "%.6f", "ns": "%.9f"}


def float_texts(values: pl.Expr) -> pl.Expr:
    """The shortest texts that are read as these numbers again; whole numbers have no point.

    >>> pl.select(float_texts(pl.lit(pl.Series([0.0, 2.5, 1e300])))).to_series().to_list()
    ['0', '2.5', '1e+300']
    """
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
    """Dates, moments or times of day in a format of strptime's letters; moments without a zone are in UTC.

    >>> day = pl.lit(31).cast(pl.Int32).cast(pl.Date)
    >>> pl.select(written_texts(day, "%d.%m.%Y")).item()
    '01.02.1970'
    """
    if "%z" in written and not zoned:
        values = values.dt.replace_time_zone("UTC")
    # Polars has nine digits where Python has six.
    return values.dt.to_string(written.replace("%f", "%6f"))


def clock_texts(values: pl.Expr, *, seconds: bool) -> pl.Expr:
    """Times of day; `seconds` leaves fractions out."""
    return values.dt.to_string("%H:%M:%S" if seconds else "%H:%M:%S%.6f")


def span_texts(values: pl.Expr, *, seconds: bool) -> pl.Expr:
    """Durations as hours, minutes and seconds; `seconds` leaves fractions out.

    >>> spans = pl.lit(pl.Series([5_400_000_000, -1_500_000])).cast(pl.Duration("us"))
    >>> pl.select(span_texts(spans, seconds=False)).to_series().to_list()
    ['1:30:00.000000', '-0:00:01.500000']
    """
    counted = values.dt.total_microseconds()
    size = counted.abs()
    whole = size // 1_000_000

    def two(number: pl.Expr) -> pl.Expr:
        return number.cast(pl.String).str.zfill(2)

    parts = [(whole // 3_600).cast(pl.String), pl.lit(":"), two(whole // 60 % 60), pl.lit(":"), two(whole % 60)]
    if not seconds:
        parts += [pl.lit("."), (size % 1_000_000).cast(pl.String).str.zfill(6)]
    clock = pl.concat_str(parts)
    # In this order the result keeps the name of the column.
    return pl.when(counted >= 0).then(clock).otherwise(pl.lit("-") + clock)
