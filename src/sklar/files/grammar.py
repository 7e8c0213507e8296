"""What the description of a model file may hold: known keys, and values of known types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from sklar.budget.certificate import SCORES
from sklar.budget.method import MethodName
from sklar.budget.plan import INSIDE
from sklar.budget.search import Searched
from sklar.draw.refine import MOST_ROUNDS
from sklar.errors import ModelError
from sklar.kernel.queries import MOST_TOKENS
from sklar.kernel.theorems import MAX_ROWS_PER_PERSON, MAX_SCALE, MIN_SCALE, Composition, Mechanism, Neighbors
from sklar.public.description import MAX_STAGES, describes_tree
from sklar.public.schema import MAX_ATTRIBUTES, MAX_LEVELS
from sklar.public.settings import Count
from sklar.public.tree import MOST_TABLES

FORMAT = "sklar-model"
# The version of the format that this Sklar writes and reads.
VERSION = 4
# The cells of the tables of all searches: a few hundred each, of which some are divided into 4,096.
MAX_SEARCH_CELLS = 1 << 22

_MAX_MEASUREMENTS = 20_000
_MAX_BLOCKS = 4_096
# What one person can move a count or a distance by.
_MAX_REACH = max(32.0 * MAX_ROWS_PER_PERSON, MOST_TOKENS)
# A grid has up to eight levels today; another search may have more tables, but never many.
_MAX_SEARCHED = 64
# Three-way tables: a hundred or so today, never many. Scores: of all of them, where they are not more.
_MAX_TRIPLES = 10_000


# Refuses a value that is not of this shape, naming where it stands.
Shape = Callable[[Any, str], None]


class Optional(NamedTuple):
    """What stands under a key that may be missing."""

    shape: Shape


Keys = dict[str, Shape | Optional]


def optional(keys: Mapping[str, Shape]) -> Keys:
    """Keys that may be missing."""
    return {key: Optional(shape) for key, shape in keys.items()}


def single(must: str, passes: Callable[[Any], bool]) -> Shape:
    """A value that passes a test, with what it must be in words."""

    def check(value: Any, where: str) -> None:
        if not passes(value):
            raise ModelError(f"its {where} must be {must}, got {value!r:.60}.")

    return check


def number(least: float = -math.inf, most: float = math.inf) -> Shape:
    """A finite number within bounds."""
    bounds = [f"at least {least:g}" if least > -math.inf else "", f"at most {most:g}" if most < math.inf else ""]
    words = " and ".join(filter(None, bounds))

    def passes(value: Any) -> bool:
        small = type(value) is float or (type(value) is int and abs(value) <= 2**63)
        return small and math.isfinite(value) and least <= value <= most

    return single(f"a number of {words}" if words else "a number", passes)


def whole(least: int = 0, most: int = 2**53) -> Shape:
    """A whole number within bounds."""
    must = f"a whole number of at least {least:g} and at most {most:g}"
    return single(must, lambda value: type(value) is int and least <= value <= most)


def text(most: int) -> Shape:
    """A text of one line, of at least one and at most so many characters."""
    must = f"a text of 1 to {most} printable characters in one line"
    return single(must, lambda value: isinstance(value, str) and 1 <= len(value) <= most and value.isprintable())


def one_of(*known: str) -> Shape:
    """One of these texts."""
    return single(f"one of {', '.join(known)}", lambda value: isinstance(value, str) and value in known)


def maybe(shape: Shape) -> Shape:
    """Null, or a value of this shape."""
    return lambda value, where: None if value is None else shape(value, where)


def each(shape: Shape, most: int) -> Shape:
    """A list of at most so many values of one shape."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise ModelError(f"its {where} must be a list of at most {most:,} entries.")
        for entry in value:
            shape(entry, where)

    return check


def named(shape: Shape, most: int, names: frozenset[str] | None = None) -> Shape:
    """Values of one shape by name, at most so many."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) > most or (names is not None and not value.keys() <= names):
            raise ModelError(f"its {where} must have at most {most:,} entries, with names that are known.")
        for name, entry in value.items():
            shape(entry, f"{where}.{name:.60}")

    return check


def table(keys: Keys) -> Shape:
    """A table with these keys and no other."""

    def check(value: Any, where: str) -> None:
        given = value.keys() if isinstance(value, dict) else set()
        known = {key: entry for key, entry in keys.items() if not isinstance(entry, Optional)}
        known |= {key: entry.shape for key, entry in keys.items() if isinstance(entry, Optional) and key in given}
        odd = sorted(given ^ known.keys())
        if odd or not isinstance(value, dict):
            words = f" ({', '.join(known)})"
            if isinstance(value, dict):
                words = f"; '{odd[0]:.60}' is {'missing' if odd[0] in known else 'not one of them'}"
            raise ModelError(f"its {where} must have exactly the keys that are known{words}.")
        for key, shape in known.items():
            shape(value[key], f"{where}.{key}" if where != "description" else key)

    return check


def chosen(by: str, shapes: Mapping[str, Keys]) -> Shape:
    """A table whose keys depend on what it says under one of them."""

    def check(value: Any, where: str) -> None:
        kind = value.get(by) if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in shapes:
            raise ModelError(f"its {where} must be one of {', '.join(shapes)}, got {kind!r:.40}.")
        table({by: _NAME, **shapes[kind]})(value, where)

    return check


_BOOLEAN = single("true or false", lambda value: type(value) is bool)
_NOTHING = single("null", lambda value: value is None)
_ANYTHING = single("a table", lambda value: isinstance(value, dict))
_NAME = single("a text", lambda value: isinstance(value, str))
_NAMES = each(_NAME, MAX_LEVELS)
_SCALE = number(MIN_SCALE, MAX_SCALE)
_ROWS = whole(1)
_SHARE = number(0.0, 1.0)
_REACH = number(0.0, _MAX_REACH)
_DIGEST = single(
    "64 hexadecimal digits", lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9a-f]{64}", value))
)
_PATTERN = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,39}")
_VERSION = single("a version", lambda value: isinstance(value, str) and bool(_PATTERN.fullmatch(value)))
_PACKAGES = frozenset({"sklar", "numpy", "numba", "cryptography", "polars", "pyarrow", "scipy"})
_GAIN = number(-1e6, 1.0)
_STEPS = whole(0, 1_000_000)
_COMPONENTS = whole(1, 1_000_000)
_NEIGHBORS = one_of(*get_args(Neighbors))

_SIZES = {"tables": whole(1), "scale": _SCALE, "sensitivity_l1": _REACH, "sensitivity_l2": _REACH}
_PLACE = {"stage": whole(1, MAX_STAGES), "order": whole(0, SCORES + 4)}
_MOVES = {"moves": number(0.0, 2.0**53), "reach": _REACH}
_MEASUREMENT: Keys = {**_SIZES, **_PLACE, **_MOVES, "parity": _BOOLEAN, "kind": _NAME}
_FINDING: Keys = {"attribute": _NAME, "tables": whole(1, _MAX_SEARCHED), "scale": _SCALE, "threshold": maybe(whole(1))}
_FINDING |= {"lost_delta": _SHARE, "of": one_of(*get_args(Searched)), "at_most": whole(0, MAX_LEVELS)}
_FINDING |= {"bounds": maybe(each(number(), 2)), **optional({"round": whole(1, 2)})}
# A block by its query: what a file says of it beside its arrays.
_BLOCK = chosen(
    "query",
    {
        "tables": {"order": whole(0, 8), "sets": maybe(whole(1, _MAX_TRIPLES)), "coarse": _BOOLEAN},
        "parities": {"orders": whole(1, 3)},
        "distances": optional({"order": whole(4, 4), "sets": whole(1, _MAX_TRIPLES)}),
        "grid": {"about": _NAME, "cells": whole(1, MAX_SEARCH_CELLS)},
        INSIDE: {},
        "side": {"what": _NAME},
        "common": {"about": _NAME, "threshold": whole(1), "keys": _NAMES},
    },
)
_CLAIM: Keys = {"neighbors": _NEIGHBORS, "epsilon": number(0.0), "delta": _SHARE, "schema_sha256": _DIGEST}
_CLAIM |= {"versions": named(_VERSION, len(_PACKAGES), _PACKAGES), "read_from_rows": _NAMES, "unread": _NAMES}
_CLAIM |= {"receipt": maybe(table({"entry": whole(1, 2**63 - 1), "head": _DIGEST}))}
_CERTIFICATE: Keys = {
    **_CLAIM,
    "mechanism": one_of(*get_args(Mechanism)),
    "composition": one_of(*get_args(Composition)),
    "public_rows": maybe(_ROWS),
    "measurements": each(table(_MEASUREMENT), _MAX_MEASUREMENTS),
    "domains": each(table(_FINDING), MAX_LEVELS),
    "earlier": _NAMES,
    "count": maybe(one_of(*get_args(Count), "everyone")),
    "rows_per_person": maybe(whole(1, MAX_ROWS_PER_PERSON)),
    "tokens": maybe(whole(1, MOST_TOKENS)),
}
_REPAIRS: Keys = {"clipped_pairs": whole(), "moved": number(0.0), "max_moved": number(0.0)}
_REPAIRS |= dict.fromkeys(("empty_attributes", "negative_eigenvalues"), whole(0, MAX_LEVELS))
_COPULAS: Mapping[str, Keys] = {
    "binary": {"dummies": _BOOLEAN, "repairs": table(_REPAIRS)},
    "latent": {
        "components": _COMPONENTS,
        "rounds": whole(0, MOST_ROUNDS),
        "matched": whole(2, 3),
        "missed": _BOOLEAN,
        "fits": whole(1, 1_000),
        **optional({"ties": each(whole(0, MOST_TABLES), MAX_ATTRIBUTES)}),
    },
}
_FITTED = {"steps": _STEPS, "fits": whole(0, 1_000), "gain_over_independence": _GAIN}
# The settings of a release by the kind of its copula.
_SETTINGS: Mapping[str, Shape] = {
    "binary": table({"method": one_of("binary"), "preset": maybe(one_of("paper"))}),
    "latent": table(
        {
            "method": one_of(*(name for name in get_args(MethodName) if name != "binary")),
            "preset": _NOTHING,
            "kind": one_of("independence", "mixture"),
            "components": _COMPONENTS,
            "rank": _NOTHING,
            "priors": named(one_of("shared", "own"), MAX_LEVELS),
            **_FITTED,
            "shrinkage": number(0.0, 1.0),
            "rules": whole(1, 1_000),
        }
    ),
}
_MODEL: Keys = {
    "format": _NAME,
    "version": whole(1),
    "schema": _ANYTHING,
    "n_rows": _ROWS,
    "public_rows": maybe(_ROWS),
    "copula": chosen("kind", _COPULAS),
    "settings": _ANYTHING,
    "certificate": table(_CERTIFICATE),
    "blocks": each(_BLOCK, _MAX_BLOCKS),
}
# What was measured and is to be fitted by a method, in place of what was fitted.
_FITTED_KEYS = frozenset({"n_rows", "settings", "copula"})
_METHOD: Keys = {"method": table({"name": one_of(*get_args(MethodName)), "paper": _BOOLEAN, "dummies": _BOOLEAN})}


def require_known(document: Mapping[str, Any]) -> None:
    """Refuse a description that holds anything but what one of its format does."""
    found = document.get("version")
    if type(found) is not int or found != VERSION:
        raise ModelError(f"its format must have version {VERSION}, got {found!r:.40}. Use the Sklar that wrote it.")
    keys: Keys = _MODEL
    if "method" in document:
        keys = {key: shape for key, shape in keys.items() if key not in _FITTED_KEYS} | _METHOD
    else:
        copula = document.get("copula")
        kind = str(copula.get("kind")) if isinstance(copula, dict) else ""
        keys = {**keys, "settings": _SETTINGS.get(kind, _ANYTHING)}
    table(keys)(document, "description")
    tree = describes_tree(document["schema"])
    schemas = [own.get("schema", {"attributes": {}}) for own in document["schema"].values() if isinstance(own, dict)]
    for schema in schemas if tree else [document["schema"]]:
        # It may be larger in memory than in the file.
        attributes = schema.get("attributes") if isinstance(schema, dict) else None
        if not isinstance(attributes, dict) or len(attributes) > MAX_ATTRIBUTES:
            raise ModelError(f"its schema must have at most {MAX_ATTRIBUTES} attributes.")
        if any(isinstance(entry, dict) and "bins" in entry for entry in attributes.values()):
            raise ModelError("its schema must list the edges of every bin.")
    stated, blocks = document["certificate"], document["blocks"]
    if not stated["epsilon"] > 0 or not 0 < stated["delta"] < 1:
        raise ModelError("its certificate must state epsilon > 0 and 0 < delta < 1.")
    if any(finding["lost_delta"] >= 1 for finding in stated.get("domains", ())):
        raise ModelError("its thresholds must fail with a chance below 1.")
    if not blocks:
        raise ModelError("its description must list at least one block.")
    if sum(entry.get("cells", 0) for entry in blocks) > MAX_SEARCH_CELLS:
        raise ModelError("its searches have more cells than any do.")
