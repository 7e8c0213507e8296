"""What the description of a model file may hold: known keys and values of known types alone, version by version.

What is not listed here is refused: a key that nobody reads could hold anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from sklar.budget.certificate import OLD_DISTANCE, SCORES
from sklar.budget.linked import KINDS
from sklar.budget.method import MethodName
from sklar.draw.refine import MOST_ROUNDS
from sklar.errors import ModelError
from sklar.kernel.queries import MOST_TOKENS
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, MAX_SCALE, MIN_SCALE, Composition, Mechanism, Neighbors
from sklar.public.description import MAX_STAGES
from sklar.public.person import Count
from sklar.public.schema import MAX_ATTRIBUTES, MAX_LEVELS

FORMAT, LINKED_FORMAT = "sklar-model", "sklar-linked"
# The newest version of each format.
VERSIONS = {FORMAT: 4, LINKED_FORMAT: 2}
# The cells of the tables of all searches: a few hundred each, of which some are divided into 4,096.
MAX_SEARCH_CELLS = 1 << 22

_MAX_MEASUREMENTS = 20_000
_MAX_BLOCKS = 4_096
# What one person can move a count or a distance by.
_MAX_REACH = max(32.0 * MAX_ROWS_PER_PERSON, MOST_TOKENS)
# A grid has up to eight levels today; another search may have more tables, but never many.
_MAX_SEARCHED = 64
_MAX_ANSWER = 2**53
# Three-way tables: a hundred or so today, never many. Scores: of all of them, where they are not more.
_MAX_TRIPLES = 10_000


@dataclass(frozen=True, slots=True)
class Value:
    """A value that passes a test, with what it must be in words."""

    must: str
    passes: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Each:
    """A list of at most so many values of one shape."""

    shape: Shape
    most: int


@dataclass(frozen=True, slots=True)
class Named:
    """Values of one shape by names that pass a test, at most so many."""

    shape: Shape
    most: int
    name: Callable[[str], bool] = lambda _name: True


@dataclass(frozen=True, slots=True)
class Maybe:
    """Null, or a value of this shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class OneOf:
    """A table whose shape depends on what it says under one of its keys."""

    key: str
    shapes: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Since:
    """What stands under a key in these versions of the format alone; an optional one may be missing."""

    first: int
    shape: Shape
    last: int = VERSIONS[FORMAT]
    optional: bool = False


# A mapping from keys to shapes has these keys and no other.
Shape = Value | Each | Named | Maybe | OneOf | Since | Mapping[str, "Shape"]


def require(value: Any, shape: Shape, where: str, version: int) -> None:
    """Refuse a value that is not of this shape in this version of the format, naming where it stands."""
    if isinstance(shape, Value):
        if not shape.passes(value):
            raise ModelError(f"its {where} must be {shape.must}, got {value!r:.60}.")
    elif isinstance(shape, Maybe):
        if value is not None:
            require(value, shape.shape, where, version)
    elif isinstance(shape, Since):
        require(value, shape.shape, where, version)
    elif isinstance(shape, Each):
        if not isinstance(value, list) or len(value) > shape.most:
            raise ModelError(f"its {where} must be a list of at most {shape.most:,} entries.")
        for entry in value:
            require(entry, shape.shape, where, version)
    elif isinstance(shape, Named):
        if not isinstance(value, dict) or len(value) > shape.most or not all(shape.name(name) for name in value):
            raise ModelError(f"its {where} must have at most {shape.most:,} entries, with names that are known.")
        for name, entry in value.items():
            require(entry, shape.shape, f"{where}.{name:.60}", version)
    elif isinstance(shape, OneOf):
        kind = value.get(shape.key) if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in shape.shapes:
            raise ModelError(f"its {where} must be one of {', '.join(shape.shapes)}, got {kind!r:.40}.")
        require(value, shape.shapes[kind], where, version)
    else:
        keys = {key: inner for key, inner in shape.items() if _is_there(key, inner, value, version)}
        if not isinstance(value, dict) or value.keys() != keys.keys():
            odd = sorted(value.keys() ^ keys.keys())[:1] if isinstance(value, dict) else []
            named = f" ({', '.join(keys)})"
            if odd:
                named = f"; '{odd[0]:.60}' is {'missing' if odd[0] in keys else 'not one of them'}"
            raise ModelError(f"its {where} must have exactly the keys that are known{named}.")
        for key, inner in keys.items():
            require(value[key], inner, f"{where}.{key}" if where != "description" else key, version)


def _is_there(key: str, shape: Shape, value: Any, version: int) -> bool:
    if not isinstance(shape, Since):
        return True
    return shape.first <= version <= shape.last and not (
        shape.optional and isinstance(value, dict) and key not in value
    )


def number(least: float = -math.inf, most: float = math.inf) -> Value:
    """A finite number within bounds."""

    def passes(value: object) -> bool:
        if type(value) is int and abs(value) > 2**63:
            return False
        return type(value) in (int, float) and math.isfinite(cast(float, value)) and least <= cast(float, value) <= most

    return Value(f"a number{_between(least, most)}", passes)


def whole(least: int = 0, most: int = 2**53) -> Value:
    """A whole number within bounds."""
    return Value(f"a whole number{_between(least, most)}", lambda value: type(value) is int and least <= value <= most)


def text(most: int) -> Value:
    """A text of at least one and at most so many characters."""
    return Value(f"a text of 1 to {most} characters", lambda value: isinstance(value, str) and 1 <= len(value) <= most)


def one_of(*known: str) -> Value:
    """One of these texts."""
    return Value(f"one of {', '.join(known)}", lambda value: isinstance(value, str) and value in known)


def _between(least: float, most: float) -> str:
    words = [f"at least {least:g}" if least > -math.inf else "", f"at most {most:g}" if most < math.inf else ""]
    return " of " + " and ".join(word for word in words if word) if any(words) else ""


_BOOLEAN = Value("true or false", lambda value: type(value) is bool)
_NOTHING = Value("null", lambda value: value is None)
_ANYTHING = Value("a table", lambda value: isinstance(value, dict))
_NAME = Value("a text", lambda value: isinstance(value, str))
_SCALE = number(MIN_SCALE, MAX_SCALE)
_ROWS = whole(1, 2**53)
_SHARE = number(0.0, 1.0)
_DIGEST = Value("64 hexadecimal digits", lambda value: bool(re.fullmatch(r"[0-9a-f]{64}", str(value))))
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,39}")
_PACKAGES = frozenset({"sklar", "numpy", "numba", "cryptography", "polars", "pyarrow", "scipy"})

_STAGE: Shape = {
    "total": Maybe(whole(-(2**53))),
    "total_scale": Maybe(_SCALE),
    "one_way": _BOOLEAN,
    "pairs": _BOOLEAN,
    "trios": Since(3, _BOOLEAN),
    "parities": Since(3, Maybe(one_of(*get_args(Neighbors)))),
}
_MEASUREMENT: dict[str, Shape] = {
    "stage": whole(1, MAX_STAGES),
    "order": whole(0, SCORES),
    "tables": whole(1),
    "scale": _SCALE,
    "sensitivity_l1": number(0.0, _MAX_REACH),
    "sensitivity_l2": number(0.0, _MAX_REACH),
    "parity": Since(3, _BOOLEAN),
    "moves": Since(4, number(0.0, 2.0**53)),
    "reach": Since(4, number(0.0, _MAX_REACH)),
    "kind": Since(4, one_of("", *KINDS)),
}
# A block by its query: what a file says of it beside its arrays.
_BLOCKS = OneOf(
    "query",
    {
        "tables": {"query": _NAME, "order": whole(0, 8), "sets": Maybe(whole(1, _MAX_TRIPLES)), "coarse": _BOOLEAN},
        "parities": {"query": _NAME, "orders": whole(1, 3)},
        "distances": {"query": _NAME},
        "grid": {"query": _NAME, "about": _NAME, "cells": whole(1, MAX_SEARCH_CELLS)},
        "common": {"query": _NAME, "about": _NAME, "threshold": whole(1), "keys": Each(_NAME, MAX_LEVELS)},
    },
)
_FINDING: Shape = {
    "attribute": _NAME,
    "tables": whole(1, _MAX_SEARCHED),
    "scale": _SCALE,
    "threshold": Maybe(whole(1)),
    "lost_delta": _SHARE,
    "of": Since(3, one_of("domain", "rounding")),
    "bounds": Since(3, Maybe(Each(number(), 2))),
    "at_most": Since(3, whole(0, MAX_LEVELS)),
}
# The noisy answer of a search: counts of texts, or how many cells each of its tables has.
_ANSWER: Shape = {
    "texts": Maybe(Named(whole(-_MAX_ANSWER, _MAX_ANSWER), MAX_LEVELS)),
    "cells": Each(whole(1, MAX_SEARCH_CELLS), _MAX_SEARCHED),
}
_CERTIFICATE: dict[str, Shape] = {
    "neighbors": one_of(*get_args(Neighbors)),
    "mechanism": one_of(*get_args(Mechanism)),
    "composition": text(200),
    "epsilon": number(0.0),
    # What tables happened to cost is claimed no more; the budget is.
    "spent_epsilon": Since(1, number(0.0), last=2),
    "delta": _SHARE,
    "public_rows": Maybe(_ROWS),
    "schema_sha256": _DIGEST,
    "measurements": Each(_MEASUREMENT, _MAX_MEASUREMENTS),
    "domains": Each(_FINDING, MAX_LEVELS),
    "earlier": Since(3, Each(_NAME, MAX_LEVELS)),
    "versions": Named(
        Value("a version", lambda value: isinstance(value, str) and bool(_VERSION.fullmatch(value))),
        len(_PACKAGES),
        _PACKAGES.__contains__,
    ),
    "claimed_by": Maybe(text(200)),
    "rounded": _BOOLEAN,
    "receipt": Since(3, Maybe({"entry": whole(1, 2**63 - 1), "head": _DIGEST})),
    "read_from_rows": Since(3, Each(_NAME, MAX_LEVELS)),
    "count": Since(3, Maybe(one_of(*get_args(Count)))),
    "rows_per_person": Since(3, Maybe(whole(1, MAX_ROWS_PER_PERSON))),
    "tokens": Since(4, _NOTHING),
}
_GAIN = number(-1e6, 1.0)
_STEPS = whole(0, 1_000_000)
_COMPONENTS = whole(1, 1_000_000)
_START_SD = number(0.0, 100.0)
_COPULAS = OneOf(
    "kind",
    {
        "binary": {
            "kind": _NAME,
            "dummies": _BOOLEAN,
            "repairs": {
                "clipped_pairs": whole(),
                "empty_attributes": whole(0, MAX_LEVELS),
                "negative_eigenvalues": whole(0, MAX_LEVELS),
                "moved": number(0.0),
                "max_moved": number(0.0),
            },
        },
        "latent": {
            "kind": _NAME,
            "components": _COMPONENTS,
            "rounds": Since(3, whole(0, MOST_ROUNDS)),
            "matched": Since(3, whole(2, 3)),
        },
    },
)
# The settings of a release by the kind of its copula. Earlier releases also fitted a low-rank copula, `factor`.
_SETTINGS: Mapping[str, Shape] = {
    "binary": {"method": one_of("binary"), "preset": Maybe(one_of("paper"))},
    "latent": {
        "method": one_of(*(name for name in get_args(MethodName) if name != "binary"), "factor"),
        "preset": _NOTHING,
        "kind": one_of("independence", "mixture", "factor"),
        "steps": _STEPS,
        "components": _COMPONENTS,
        "rank": Maybe(whole(1, 10_000)),
        "fits": whole(0, 1_000),
        "gain_over_independence": _GAIN,
        "priors": Named(one_of("shared", "own"), MAX_LEVELS),
        "shrinkage": Since(1, _SHARE, last=2),
        "start_sd": Since(1, _START_SD, last=2),
        "tried": Since(
            1,
            Each(
                {
                    "kind": one_of("mixture", "factor"),
                    "start_sd": _START_SD,
                    "shrinkage": _SHARE,
                    "steps": _STEPS,
                    "gain": _GAIN,
                },
                100,
            ),
            last=2,
        ),
    },
}
_MODEL: Mapping[str, Shape] = {
    "format": _NAME,
    "version": whole(1),
    "schema": _ANYTHING,
    "n_rows": _ROWS,
    "public_rows": Maybe(_ROWS),
    "copula": _COPULAS,
    "settings": _ANYTHING,
    "certificate": _CERTIFICATE,
    "blocks": Since(4, Each(_BLOCKS, _MAX_BLOCKS)),
    "stages": Since(1, Each(_STAGE, MAX_STAGES), last=3),
    "answers": Since(3, Each(_ANSWER, MAX_LEVELS), last=3),
    "triples": Since(3, {"tables": whole(1, _MAX_TRIPLES)}, last=3, optional=True),
    "scores": Since(
        3,
        {"tables": whole(1, _MAX_TRIPLES), "scale": number(MIN_SCALE, MAX_SCALE / OLD_DISTANCE)},
        last=3,
        optional=True,
    ),
}
_PICKED = ("kind", "tables", "scale", "sensitivity_l1", "sensitivity_l2")
_LINKED_CERTIFICATE: dict[str, Shape] = {
    **_CERTIFICATE,
    "mechanism": one_of("gaussian"),
    "composition": one_of("tight"),
    "domains": Each(_FINDING, 0),
    "earlier": Each(_NAME, 0),
    "claimed_by": _NOTHING,
    "rounded": Value("false", lambda value: value is False),
    "count": one_of("people"),
    "rows_per_person": whole(1, 1),
    "tokens": whole(1, MOST_TOKENS),
    "public_people": Maybe(_ROWS),
    "unit": one_of("person"),
}
# What a certificate of linked tables does not say in version 1.
_LATER = ("public_rows", "domains", "earlier", "claimed_by", "rounded", "count", "rows_per_person", "spent_epsilon")
_LINKED: Mapping[str, Shape] = {
    "format": _NAME,
    "version": whole(1),
    "schema": {
        "people": {"schema": _ANYTHING, "key": _NAME},
        "events": {"schema": _ANYTHING, "key": _NAME, "at_most": whole(1)},
    },
    "n_people": _ROWS,
    "settings": {
        "person_classes": whole(1, 1_000_000),
        "event_classes": whole(1, 1_000),
        "steps": _STEPS,
        "fits": whole(0, 1_000),
        "gain_over_independence": _GAIN,
    },
}
# By version.
_LINKED_MODELS: Mapping[int, Shape] = {
    1: {
        **_LINKED,
        "certificate": {
            **{key: shape for key, shape in _LINKED_CERTIFICATE.items() if key not in _LATER},
            "measurements": Each({key: _MEASUREMENT[key] for key in _PICKED}, _MAX_MEASUREMENTS),
        },
    },
    2: {
        **_LINKED,
        "blocks": Each({"query": one_of("shares"), "what": one_of(*KINDS)}, len(KINDS)),
        "certificate": _LINKED_CERTIFICATE,
    },
}


def require_known(document: Mapping[str, Any]) -> None:
    """Refuse a description that holds anything but what one of its format and version does."""
    linked, newest = document["format"] == LINKED_FORMAT, VERSIONS[document["format"]]
    version: Any = document.get("version")
    if version not in range(1, newest + 1):
        raise ModelError(f"it has format version {version!r:.40}, not {newest}. Use the Sklar that wrote it.")
    if linked:
        require(document, _LINKED_MODELS[version], "description", VERSIONS[FORMAT])
        schemas = [document["schema"][part]["schema"] for part in ("people", "events")]
    else:
        copula = document.get("copula")
        kind = str(copula.get("kind")) if isinstance(copula, dict) else ""
        require(document, {**_MODEL, "settings": _SETTINGS.get(kind, _ANYTHING)}, "description", version)
        schemas = [document["schema"]]
    for schema in schemas:
        _require_edges(schema)
    stated, blocks = document["certificate"], document.get("blocks", ())
    claimed = stated.get("claimed_by")
    if not stated["epsilon"] > 0 or not 0 <= stated["delta"] < 1 or (not stated["delta"] and not claimed):
        raise ModelError("its certificate must state epsilon > 0 and 0 < delta < 1.")
    if claimed is None:
        require(stated["composition"], one_of(*get_args(Composition)), "certificate.composition", version)
    if any(finding["lost_delta"] >= 1 for finding in stated.get("domains", ())):
        raise ModelError("its thresholds must fail with a chance below 1.")
    if not (document.get("stages") or blocks or (linked and version == 1)):
        raise ModelError("its description must list at least one block.")
    cells = [entry.get("cells", 0) for entry in blocks]
    cells += [size for entry in document.get("answers", ()) for size in entry["cells"]]
    if sum(cells) > MAX_SEARCH_CELLS:
        raise ModelError("its searches have more cells than any do.")


def _require_edges(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is larger in memory than in the file, before it is built."""
    attributes = schema.get("attributes")
    if not isinstance(attributes, dict) or len(attributes) > MAX_ATTRIBUTES:
        raise ModelError(f"its schema must have at most {MAX_ATTRIBUTES} attributes.")
    if any(isinstance(entry, dict) and "bins" in entry for entry in attributes.values()):
        raise ModelError("its schema must list the edges of every bin.")
