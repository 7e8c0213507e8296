"""The domain that an entry of a schema states: categories, edges, or the bounds between which a release finds them.

An error names the attribute, what is required, what was given, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, get_args

from sklar.errors import SchemaError
from sklar.public.axis import TIMED, check_edge, edge_text
from sklar.public.checks import format_of, step_of
from sklar.public.clock import SECOND, format_grain
from sklar.public.schema import BINNED, MAX_LEVELS, Domain
from sklar.public.spacing import GROWING, Spacing, spaced_edges
from sklar.public.types import exact

# How many categories a release looks for when a domain is private and the schema does not say.
DEFAULT_AT_MOST = 50
# The same for bins of numbers; bounds with this many values or fewer have a level for each.
DEFAULT_BINS, EVERY_VALUE = 20, 32


def domain_of(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[Domain, int]:
    """Whether the domain is public, and if it is private, the most categories or bins that a release looks for."""
    domain = entry.get("domain", "public")
    if domain not in get_args(Domain):
        raise SchemaError(f"{where}: domain must be one of {', '.join(get_args(Domain))}, got {domain!r}.")
    if domain != "private":
        if "at_most" in entry:
            raise SchemaError(f'{where}: at_most goes with domain = "private". Remove one, or add the other.')
        return domain, 0
    given = {"values", "other", "edges", "points", "spacing"} & set(entry)
    if given:
        raise SchemaError(
            f'{where}: domain = "private" is found by a release, so it takes no {sorted(given)[0]}. Remove one of them.'
        )
    key = "at_most" if kind == "categorical" else "bins"
    at_most = entry.get(key, DEFAULT_AT_MOST if kind == "categorical" else DEFAULT_BINS)
    if type(at_most) is not int or not 1 <= at_most <= MAX_LEVELS:
        raise SchemaError(f"{where}: {key} must be a whole number from 1 to {MAX_LEVELS}, got {at_most!r}.")
    return domain, at_most


def bounds_of(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[int, ...] | tuple[float, ...]:
    """The two bounds between which a release finds the edges."""
    if kind == "categorical":
        return ()
    if not {"low", "high"} <= set(entry):
        raise SchemaError(f'{where}: domain = "private" needs low and high: wide bounds from public knowledge.')
    return edges_of(where, kind, {**entry, "bins": 1})


def values_of(where: str, entry: Mapping[str, Any], domain: Domain) -> tuple[str, ...] | tuple[int, ...]:
    """The categories that an entry lists, in their order."""
    values = entry.get("values")
    if domain == "private" or (domain == "found" and values == []):
        # A release may find nothing: no category may be common enough.
        return ()
    if not isinstance(values, list) or not values:
        raise SchemaError(f"{where}: values must list the categories, got {values!r}. Write values = ['a', 'b'].")
    kind = type(values[0]) if type(values[0]) in (str, int) else str
    odd = [value for value in values if type(value) is not kind]
    if odd:
        raise SchemaError(f"{where}: values must be all texts or all whole numbers, got {odd[0]!r}. Quote it.")
    if kind is int:
        large = [value for value in values if not -(2**63) <= value < 2**63]
        if large:
            raise SchemaError(f"{where}: whole numbers must fit in 64 bits, got {large[0]}. Quote all values.")
    return tuple(values)


def edges_of(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[int, ...] | tuple[float, ...]:
    """The edges that an entry lists, or that its low, high and bins imply."""
    if kind not in BINNED:
        return ()
    spaced = {"low", "high", "bins"} & set(entry)
    if "edges" in entry and (spaced or "spacing" in entry):
        extra = sorted(spaced or {"spacing"})[0]
        raise SchemaError(f"{where}: give either edges or low, high and bins, not both. Remove {extra}.")
    if "edges" in entry:
        raw = entry["edges"]
        if not isinstance(raw, list) or len(raw) < 2:
            raise SchemaError(f"{where}: edges must list at least two numbers or dates, got {raw!r}.")
        edges = tuple(check_edge(where, kind, edge) for edge in raw)
    elif len(spaced) == 3:
        edges = _spaced(where, kind, entry)
    else:
        raise SchemaError(f"{where}: needs edges = [...], or low, high and bins. Add them from public knowledge.")
    for before, after in pairwise(edges):
        if not before < after:
            shown = f"{edge_text(kind, after)} after {edge_text(kind, before)}"
            raise SchemaError(f"{where}: edges must increase, got {shown}. Remove one.")
    return edges


def _spaced(where: str, kind: str, entry: Mapping[str, Any]) -> tuple[int, ...] | tuple[float, ...]:
    low, high, bins, spacing = entry["low"], entry["high"], entry["bins"], entry.get("spacing", "equal")
    first, last = check_edge(where, kind, low), check_edge(where, kind, high)
    if not isinstance(bins, int) or isinstance(bins, bool) or not 1 <= bins <= MAX_LEVELS:
        raise SchemaError(f"{where}: bins must be a whole number from 1 to {MAX_LEVELS}, got {bins!r}.")
    if not first < last:
        raise SchemaError(f"{where}: low must be below high, got {low} and {high}.")
    if spacing not in get_args(Spacing):
        raise SchemaError(f"{where}: spacing must be one of {', '.join(get_args(Spacing))}, got {spacing!r}.")
    if spacing != "equal" and kind not in GROWING:
        raise SchemaError(
            f"{where}: spacing = '{spacing}' is for {', '.join(GROWING)}, where zero means nothing. Use 'equal'."
        )
    given = step_of(where, kind, entry)
    step = None if given is None else exact(given) * (SECOND if kind in TIMED else 1)
    written = format_of(where, kind, entry)
    if step is None and written is not None and kind in TIMED:
        step = Fraction(format_grain(written))
    if (kind != "real" or step is not None) and last - first < bins * (step or 1):
        raise SchemaError(f"{where}: {bins} bins do not fit between {low} and {high}. Use fewer.")
    return spaced_edges(kind, first, last, bins, spacing, step)
