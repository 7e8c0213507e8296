"""What the description of a model file may hold: known keys and values of known types alone.

Everything that a description may say is listed here, key by key. What is not listed is refused: a key that nobody reads
could hold anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

from sklar.budget.certificate import OLD_DISTANCE, SCORES
from sklar.budget.method import MethodName
from sklar.draw.refine import MOST_ROUNDS
from sklar.errors import ModelError
from sklar.kernel.queries import MOST_TOKENS
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, MAX_SCALE, MIN_SCALE, Composition, Mechanism, Neighbors
from sklar.public.description import MAX_STAGES
from sklar.public.person import Count
from sklar.public.schema import MAX_ATTRIBUTES, MAX_LEVELS

_MAX_MEASUREMENTS = 20_000
# What one person can move a count or a distance by.
_MAX_REACH = 32.0 * MAX_ROWS_PER_PERSON
# A grid has up to eight levels today; another search may have more tables, but never many.
_MAX_SEARCHED = 64
# The cells of one table of a search: a few hundred, of which some are divided into 4,096.
MAX_SEARCH_CELLS = 1 << 22
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


# A mapping from keys to shapes has these keys and no other.
Shape = Value | Each | Named | Maybe | Mapping[str, "Shape"]


def require(value: Any, shape: Shape, where: str) -> None:
    """Refuse a value that is not of this shape, naming where it stands."""
    if isinstance(shape, Value):
        if not shape.passes(value):
            raise ModelError(f"its {where} must be {shape.must}, got {value!r:.60}.")
    elif isinstance(shape, Maybe):
        if value is not None:
            require(value, shape.shape, where)
    elif isinstance(shape, Each):
        if not isinstance(value, list) or len(value) > shape.most:
            raise ModelError(f"its {where} must be a list of at most {shape.most:,} entries.")
        for entry in value:
            require(entry, shape.shape, where)
    elif isinstance(shape, Named):
        if not isinstance(value, dict) or len(value) > shape.most or not all(shape.name(name) for name in value):
            raise ModelError(f"its {where} must have at most {shape.most:,} entries, with names that are known.")
        for name, entry in value.items():
            require(entry, shape.shape, f"{where}.{name:.60}")
    else:
        if not isinstance(value, dict) or value.keys() != shape.keys():
            odd = sorted(value.keys() ^ shape.keys())[:1] if isinstance(value, dict) else []
            raise ModelError(f"its {where} must have exactly the keys that are known{_named(odd, shape)}.")
        for key, inner in shape.items():
            require(value[key], inner, f"{where}.{key}" if where != "description" else key)


def _named(odd: list[str], shape: Mapping[str, Shape]) -> str:
    if not odd:
        return f" ({', '.join(shape)})"
    return f"; '{odd[0]:.60}' is {'missing' if odd[0] in shape else 'not one of them'}"


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

_STAGE: dict[str, Shape] = {
    "total": Maybe(whole(-(2**53))),
    "total_scale": Maybe(_SCALE),
    "one_way": _BOOLEAN,
    "pairs": _BOOLEAN,
    "trios": _BOOLEAN,
    "parities": Maybe(one_of(*get_args(Neighbors))),
}
# What versions 1 and 2 do not say: they measured no parities.
_LATER_OF_STAGE = ("trios", "parities")
_MEASUREMENT: dict[str, Shape] = {
    "stage": whole(1, MAX_STAGES),
    "order": whole(0, SCORES),
    "tables": whole(1),
    "scale": _SCALE,
    "sensitivity_l1": number(0.0, _MAX_REACH),
    "sensitivity_l2": number(0.0, _MAX_REACH),
    "parity": _BOOLEAN,
    "moves": number(0.0, 2.0**53),
    "reach": number(0.0, _MAX_REACH),
}
# What versions 1 and 2, and version 3, do not say of a measurement.
_LATER_OF_MEASUREMENT = {1: ("parity", "moves", "reach"), 2: ("parity", "moves", "reach"), 3: ("moves", "reach")}
# A block by its query: what a file says of it beside its arrays.
_BLOCKS: dict[str, Shape] = {
    "tables": {"query": _NAME, "order": whole(0, 8), "sets": Maybe(whole(1, _MAX_TRIPLES)), "coarse": _BOOLEAN},
    "parities": {"query": _NAME, "orders": whole(1, 3)},
    "distances": {"query": _NAME},
    "grid": {"query": _NAME, "about": _NAME, "cells": whole(1, MAX_SEARCH_CELLS)},
    "common": {"query": _NAME, "about": _NAME, "threshold": whole(1), "keys": Each(_NAME, MAX_LEVELS)},
}
_MAX_BLOCKS = 4_096
_FINDING: dict[str, Shape] = {
    "attribute": _NAME,
    "tables": whole(1, _MAX_SEARCHED),
    "scale": _SCALE,
    "threshold": Maybe(whole(1)),
    "lost_delta": _SHARE,
    "of": one_of("domain", "rounding"),
    "bounds": Maybe(Each(number(), 2)),
    "at_most": whole(0, MAX_LEVELS),
}
# What a search of version 3 says beside what the earlier ones did.
_LATER_OF_FINDING = ("of", "bounds", "at_most")
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
    "delta": _SHARE,
    "public_rows": Maybe(_ROWS),
    "schema_sha256": _DIGEST,
    "measurements": Each(_MEASUREMENT, _MAX_MEASUREMENTS),
    "domains": Each(_FINDING, MAX_LEVELS),
    "earlier": Each(_NAME, MAX_LEVELS),
    "versions": Named(
        Value("a version", lambda value: isinstance(value, str) and bool(_VERSION.fullmatch(value))),
        len(_PACKAGES),
        _PACKAGES.__contains__,
    ),
    "claimed_by": Maybe(text(200)),
    "rounded": _BOOLEAN,
    "receipt": Maybe({"entry": whole(1, 2**63 - 1), "head": _DIGEST}),
    "read_from_rows": Each(_NAME, MAX_LEVELS),
    "count": Maybe(one_of(*get_args(Count))),
    "rows_per_person": Maybe(whole(1, MAX_ROWS_PER_PERSON)),
}
_BINARY_METHODS = ("binary",)
# Earlier releases also fitted a low-rank copula over whole attributes, `factor`.
_LATENT_METHODS = (*(name for name in get_args(MethodName) if name not in _BINARY_METHODS), "factor")
_GAIN = number(-1e6, 1.0)
_STEPS = whole(0, 1_000_000)
# Copulas by kind: what is said of each, and which settings a release with it has.
_COPULAS: dict[str, tuple[Shape, Shape]] = {
    "binary": (
        {
            "kind": one_of("binary"),
            "dummies": _BOOLEAN,
            "repairs": {
                "clipped_pairs": whole(),
                "empty_attributes": whole(0, MAX_LEVELS),
                "negative_eigenvalues": whole(0, MAX_LEVELS),
                "moved": number(0.0),
                "max_moved": number(0.0),
            },
        },
        {"method": one_of(*_BINARY_METHODS), "preset": Maybe(one_of("paper"))},
    ),
    "latent": (
        {
            "kind": one_of("latent"),
            "components": whole(1, 1_000_000),
            "rounds": whole(0, MOST_ROUNDS),
            "matched": whole(2, 3),
        },
        {
            "method": one_of(*_LATENT_METHODS),
            "preset": _NOTHING,
            "kind": one_of("independence", "mixture", "factor"),
            "steps": _STEPS,
            "components": whole(1, 1_000_000),
            "rank": Maybe(whole(1, 10_000)),
            "fits": whole(0, 1_000),
            "gain_over_independence": _GAIN,
            "priors": Named(one_of("shared", "own"), MAX_LEVELS),
        },
    ),
}
# The same of models of versions 1 and 2.
_OLDER_LATENT: tuple[Shape, Shape] = (
    {"kind": one_of("latent"), "components": whole(1, 1_000_000)},
    {
        **cast(dict[str, Shape], _COPULAS["latent"][1]),
        "shrinkage": _SHARE,
        "start_sd": number(0.0, 100.0),
        "tried": Each(
            {
                "kind": one_of("mixture", "factor"),
                "start_sd": number(0.0, 100.0),
                "shrinkage": _SHARE,
                "steps": _STEPS,
                "gain": _GAIN,
            },
            100,
        ),
    },
)


@cache
def _linked() -> Shape:
    """What the description of a linked model holds. Made when it is asked for: most models are of one table."""
    from sklar.budget.linked import TableKind

    return {
        "format": _NAME,
        "version": whole(1, 1),
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
        "certificate": {
            "neighbors": one_of(*get_args(Neighbors)),
            "mechanism": one_of("gaussian"),
            "composition": one_of("tight"),
            "epsilon": number(0.0),
            "delta": _SHARE,
            "public_people": Maybe(_ROWS),
            "schema_sha256": _DIGEST,
            "tokens": whole(1, MOST_TOKENS),
            "measurements": Each(
                {
                    "kind": one_of(*get_args(TableKind)),
                    "tables": whole(1),
                    "scale": _SCALE,
                    "sensitivity_l1": number(0.0, 2.0),
                    "sensitivity_l2": number(0.0, 2.0),
                },
                _MAX_MEASUREMENTS,
            ),
            "unit": one_of("person"),
            "versions": _CERTIFICATE["versions"],
            "receipt": _CERTIFICATE["receipt"],
            "read_from_rows": _CERTIFICATE["read_from_rows"],
        },
    }


def require_known_linked(document: Any) -> None:
    """Refuse a description that holds anything but what that of a model of linked tables does."""
    require(document, _linked(), "description")
    for part in ("people", "events"):
        _require_edges(document["schema"][part]["schema"])
    stated = document["certificate"]
    if not stated["epsilon"] > 0 or not 0 < stated["delta"] < 1:
        raise ModelError("its certificate must state epsilon > 0 and 0 < delta < 1.")


def require_known(document: Any, versions: range) -> None:
    """Refuse a description that holds anything but what a model's of these versions does."""
    kind = document["copula"].get("kind") if isinstance(document.get("copula"), dict) else None
    if kind not in _COPULAS:
        raise ModelError(f"its model must be one of {', '.join(_COPULAS)}, got {kind!r:.40}.")
    older = kind == "latent" and document.get("version") in (1, 2)
    copula, settings = _OLDER_LATENT if older else _COPULAS[kind]
    shape: dict[str, Shape] = {
        "format": _NAME,
        "version": whole(versions.start, versions.stop - 1),
        "schema": _ANYTHING,
        "n_rows": _ROWS,
        "public_rows": Maybe(_ROWS),
        "copula": copula,
        "settings": settings,
        "certificate": _certificate(document["version"]),
    }
    if document["version"] > 3:
        shape["blocks"] = Each(_ANYTHING, _MAX_BLOCKS)
    else:
        shape["stages"] = Each(_stage(document["version"]), MAX_STAGES)
    if document["version"] == 3:
        shape["answers"] = Each(_ANSWER, MAX_LEVELS)
        if "triples" in document:
            shape["triples"] = {"tables": whole(1, _MAX_TRIPLES)}
        if "scores" in document:
            shape["scores"] = {"tables": whole(1, _MAX_TRIPLES), "scale": number(MIN_SCALE, MAX_SCALE / OLD_DISTANCE)}
    require(document, shape, "description")
    _require_edges(document["schema"])
    stated = document["certificate"]
    if not stated["epsilon"] > 0 or not 0 <= stated["delta"] < 1 or (not stated["delta"] and not stated["claimed_by"]):
        raise ModelError("its certificate must state epsilon > 0 and 0 < delta < 1.")
    if stated["claimed_by"] is None:
        require(stated["composition"], one_of(*get_args(Composition)), "certificate.composition")
    if any(finding["lost_delta"] >= 1 for finding in stated["domains"]):
        raise ModelError("its thresholds must fail with a chance below 1.")
    if not document.get("stages", document.get("blocks")):
        raise ModelError("its description must list at least one block.")
    for entry in document.get("blocks", ()):
        kind = entry.get("query")
        if kind not in _BLOCKS:
            raise ModelError(f"its blocks must be one of {', '.join(_BLOCKS)}, got {kind!r:.40}.")
        require(entry, _BLOCKS[kind], "block")
    if sum(entry.get("cells", 0) for entry in document.get("blocks", ())) > MAX_SEARCH_CELLS:
        raise ModelError("its searches have more cells than any do.")


def _stage(version: int) -> Shape:
    return _STAGE if version >= 3 else {key: shape for key, shape in _STAGE.items() if key not in _LATER_OF_STAGE}


def _certificate(version: int) -> Shape:
    if version > 3:
        return _CERTIFICATE
    later = _LATER_OF_MEASUREMENT[version]
    measurement = {key: shape for key, shape in _MEASUREMENT.items() if key not in later}
    stated = {**_CERTIFICATE, "measurements": Each(measurement, _MAX_MEASUREMENTS)}
    if version == 3:
        return stated
    # These versions stated, beside the budget, what tables happened to cost, and nothing of earlier releases.
    missing = ("earlier", "receipt", "read_from_rows", "count", "rows_per_person")
    finding = {key: shape for key, shape in _FINDING.items() if key not in _LATER_OF_FINDING}
    older = {key: shape for key, shape in stated.items() if key not in missing}
    return {**older, "domains": Each(finding, MAX_LEVELS), "spent_epsilon": number(0.0)}


def _require_edges(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is larger in memory than in the file, before it is built."""
    attributes = schema.get("attributes")
    if not isinstance(attributes, dict) or len(attributes) > MAX_ATTRIBUTES:
        raise ModelError(f"its schema must have at most {MAX_ATTRIBUTES} attributes.")
    if any(isinstance(entry, dict) and "bins" in entry for entry in attributes.values()):
        raise ModelError("its schema must list the edges of every bin.")
