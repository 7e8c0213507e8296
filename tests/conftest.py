"""What several test files share: schemas of every kind with odd names and values, codes for them, exact counts."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import click
import hypothesis.strategies as st
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import reject, settings
from numpy.typing import NDArray

from sklar.errors import LedgerError, SchemaError
from sklar.kernel.cells import Cells
from sklar.kernel.queries import Codes, Tables
from sklar.public.axis import AXES, DAY, SECOND, days, microseconds
from sklar.public.outputs import exact
from sklar.public.schema import Schema
from sklar.rows.count import Exact

# `make test` draws the same examples every time, so that a landing never fails by chance; `make slow` draws new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ODD = (
    *("", " ", "?", '"', "'", "a,b", 'say "hi"', "line\nbreak", "\r\n", "\x7f", "\x00", "\\"),
    *("é", "名", "#", "a=b", "NA"),
)
TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = TEXTS.filter(lambda text: text != "" and not text.startswith("\ufeff"))
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
NEAR = st.integers(-5, 5)
OUTPUTS = {
    "categorical": ("string", "category", "ordered category", "int8", "int64"),
    "boolean": ("bool", "string", "int8", "uint64"),
    "integer": ("int8", "uint16", "int64", "float32", "float64", "decimal(38, 3)", "string"),
    "real": ("float32", "float64", "decimal(18, 2)", "string"),
    "date": ("date32", "date64", "timestamp[s]", "timestamp[ns]", "timestamp[us, tz=Europe/Berlin]", "string"),
    "datetime": ("timestamp[ms]", "timestamp[us, tz=America/New_York]", "timestamp[ns, tz=+05:30]", "string"),
    "time": ("time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "string"),
    "duration": ("duration[s]", "duration[ms]", "duration[us]", "duration[ns]", "string"),
    "year": ("int16", "uint64", "string"),
    "yearmonth": ("string", "date32"),
}
FORMATS = {
    "date": ("%d.%m.%Y", "%Y%m%d", "%b %d, %Y"),
    "datetime": (
        *("%d/%m/%Y %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%d.%m.%Y %I:%M:%S %p", "%Y-%m-%d %H:%M:%S%z", "%d %b %Y %H"),
    ),
    "time": ("%H.%M", "%I:%M:%S %p", "%H%M%S"),
    "yearmonth": ("%m/%Y", "%b %Y"),
}
STEPS = {"integer": (1, 5), "real": (0.1, 0.25, 2), "date": (1, 7), "datetime": (60, 0.001), "time": (60, 0.5)}
STEPS |= {"duration": (60, 0.001), "year": (1, 10), "yearmonth": (1, 3)}
# The ends of each axis, in its own units.
ENDS = {
    "integer": (-(2**63) + 1, 2**63 - 1), "real": (-(10**9), 10**9), "date": (days(dt.date.min), days(dt.date.max)),
    "datetime": (microseconds(dt.datetime.min), microseconds(dt.datetime.max)), "time": (0, DAY),
    "duration": (-(2**62), 2**62), "year": (1, 3_000), "yearmonth": (12, 9_999 * 12),
}  # fmt: skip


def refuses(match: str | None, action: Callable[..., object], *given: Any, **settings: Any) -> BaseException:
    """What an action raises, a `LedgerError` unless `error` is given, which must match."""
    with pytest.raises(settings.pop("error", LedgerError), match=match) as raised:
        action(*given, **settings)
    error: BaseException = raised.value
    return error


def few_steps() -> Iterator[None]:
    """Short fits: how good they are is another test's business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sklar.fitting.choose.MAX_STEPS", 60)
        yield


def output_of(command: click.Command, *arguments: object, typed: str | None = None, code: int = 0) -> str:
    """What a command prints; it ends with this exit code, or raises what it does not explain itself."""
    done = CliRunner().invoke(command, [*map(str, arguments)], input=typed, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def count_plainly(codes: Codes, cells: Cells) -> Exact:
    """All one-way and two-way tables of codes by the kernel's plain routine."""
    tables = tuple(Tables(cells=cells, order=order).count(codes) for order in (1, 2))
    return Exact(n_rows=len(codes[0]), tables=tables)


def on_axis(kind: str, unit: Fraction) -> st.SearchStrategy[Any]:
    """Edges of this kind as a schema file holds them: multiples of a unit, some of them near each other."""
    low, high = (int(end / unit) for end in ENDS[kind])
    near = st.integers(max(low, -5), 5) if low <= 5 else st.nothing()
    number = float if kind == "real" else int
    return (near | st.integers(low, high)).map(lambda times: AXES[kind].value(number(times * unit)))


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """One attribute's entry, as parsed from TOML; now and then one that the schema refuses."""
    kind = draw(st.sampled_from(list(OUTPUTS)))
    entry: dict[str, Any] = {"type": kind}
    unit = Fraction(1)
    if kind in FORMATS and draw(st.booleans()):
        entry["format"] = draw(st.sampled_from(FORMATS[kind]))
        unit = (AXES[kind].told(entry["format"]) if AXES[kind].timed else None) or unit
    if kind in STEPS and draw(st.integers(0, 3)) == 0:
        entry["step"] = draw(st.sampled_from(STEPS[kind]))
        unit = exact(entry["step"]) * (SECOND if AXES[kind].timed else 1)
    axis = on_axis(kind, unit) if kind in ENDS else NEAR
    if kind == "real" and "step" not in entry:
        axis = st.sampled_from([0.0, 0.1, 0.2, 0.1 + 0.2, 1.0]) | st.floats(allow_nan=False, allow_infinity=False)
    if kind == "categorical":
        values = draw(st.sampled_from([TEXTS, NEAR, INT64]))
        entry["values"] = draw(st.lists(values, min_size=1, max_size=5, unique=True))
        entry["other"] = draw(st.booleans())
        entry["ordered"] = draw(st.booleans())
    elif kind == "boolean":
        if draw(st.booleans()):
            entry["texts"] = draw(st.sampled_from([["N", "Y"], ["1", "2"], ["no", "yes"], ["é", "\\"]]))
    else:
        entry["edges"] = draw(st.lists(axis, min_size=2, max_size=5, unique=True))
        entry["edges"].sort(key=AXES[kind].check)
        if draw(st.booleans()):
            near = st.sampled_from(entry["edges"])
            entry["points"] = draw(st.lists(near | axis, min_size=1, max_size=4, unique=True))
    optional: dict[str, st.SearchStrategy[Any]] = {
        "special": st.lists(TEXTS | NEAR | axis, min_size=1, max_size=3, unique_by=str), "missing": TEXTS,
        "output": st.sampled_from(OUTPUTS[kind]), "reviewed": st.booleans(),
        "provenance": st.sampled_from(["public", "rows"]),
    }  # fmt: skip
    entry |= draw(st.fixed_dictionaries({}, optional=optional))
    if "missing" in entry and kind in ENDS and draw(st.booleans()):
        entry["outside"] = "missing"
    return entry


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A schema that `Schema.from_dict` accepts."""
    attributes = draw(st.dictionaries(NAMES, entries(), min_size=1, max_size=4))
    try:
        return Schema.from_dict({"table": {"name": draw(NAMES)}, "attributes": attributes})
    except SchemaError:
        reject()


@st.composite
def schemas_with_codes(draw: st.DrawFn) -> tuple[Schema, NDArray[np.int32]]:
    """A schema and codes of its levels, shape (m, rows)."""
    schema = draw(schemas())
    rows = draw(st.integers(0, 12))
    codes = [draw(st.lists(st.integers(0, int(size) - 1), min_size=rows, max_size=rows)) for size in schema.sizes]
    return schema, np.array(codes, dtype=np.int32).reshape(schema.n_attributes, rows)
