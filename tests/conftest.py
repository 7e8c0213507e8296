"""Strategies that several test files share: schemas of every kind with odd names and values, and codes for them."""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import reject, settings
from numpy.typing import NDArray

from sklar.errors import SchemaError
from sklar.public.schema import Schema

# `make test` draws the same examples every time, so that a landing never fails by chance; `make slow` draws new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ODD = (
    "",
    " ",
    "?",
    '"',
    "'",
    "a,b",
    'say "hi"',
    "line\nbreak",
    "\r\n",
    "\x7f",
    "\x00",
    "\\",
    "é",
    "名",
    "#",
    "a=b",
    "NA",
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
}
REALS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """One attribute's entry, as parsed from TOML; now and then one that the schema refuses."""
    kind = draw(st.sampled_from(["categorical", "boolean", "integer", "real", "date", "datetime"]))
    entry: dict[str, Any] = {"type": kind}
    axes = {
        "integer": NEAR | INT64,
        "real": st.sampled_from([0.0, 0.1, 0.2, 0.1 + 0.2, 1.0]) | REALS,
        "date": st.dates().map(str),
        "datetime": st.datetimes().map(lambda moment: moment.isoformat()),
    }
    if kind == "categorical":
        values = draw(st.sampled_from([TEXTS, NEAR, INT64]))
        entry["values"] = draw(st.lists(values, min_size=1, max_size=5, unique=True))
        entry["other"] = draw(st.booleans())
    elif kind in axes:
        entry["edges"] = sorted(draw(st.lists(axes[kind], min_size=2, max_size=5, unique=True)))
        if draw(st.booleans()):
            near = st.sampled_from(entry["edges"])
            entry["points"] = draw(st.lists(near | axes[kind], min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        numbers = axes.get(kind, NEAR)
        entry["special"] = draw(st.lists(TEXTS | NEAR | numbers, min_size=1, max_size=3, unique_by=str))
    if draw(st.booleans()):
        entry["missing"] = draw(TEXTS)
        if kind in axes and draw(st.booleans()):
            entry["outside"] = "missing"
    if draw(st.booleans()):
        entry["output"] = draw(st.sampled_from(OUTPUTS[kind]))
    if draw(st.booleans()):
        entry["reviewed"] = draw(st.booleans())
    if draw(st.booleans()):
        entry["provenance"] = draw(st.sampled_from(["public", "rows"]))
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
