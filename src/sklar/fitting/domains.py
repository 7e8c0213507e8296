"""Noisy answers to domains: categories that were found, and edges at quantiles of noisy grids. Post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sklar.budget.search import BRANCHES, Search, grid
from sklar.fitting.simplex import project
from sklar.public.schema import Attribute, Schema

# A cell of the grid is divided by the next level where its estimate is this many standard errors above zero.
_SOLID = 2.0

# What the vault let out about one attribute: noisy counts of common texts, or of all cells of every level of its grid.
Found = Mapping[str, int] | Sequence[NDArray[np.int64]]


def find_domains(schema: Schema, search: Search, answers: Sequence[Found]) -> Schema:
    """The schema with its private domains as the noisy answers have them. Rules speak of public domains alone."""
    found = {attribute.name: attribute for attribute in schema.attributes}
    public = tuple(attribute for attribute in schema.attributes if attribute.domain != "private")
    taken = frozenset(Schema(name="", attributes=public).dummy_names)
    for finding, answer in zip(search.findings, answers, strict=True):
        attribute = schema.attribute(finding.attribute)
        if isinstance(answer, Mapping):
            chosen = found_values(attribute, answer, taken)
            taken |= {f"{attribute.name}={level}" for level in chosen.levels}
        else:
            chosen = found_edges(attribute, answer, finding.scale)
        found[attribute.name] = chosen
    whole = schema.whole or schema
    attributes = tuple(found.get(attribute.name, attribute) for attribute in whole.attributes)
    return replace(whole, attributes=attributes).checked().measured


def found_values(attribute: Attribute, common: Mapping[str, int], taken: frozenset[str]) -> Attribute:
    """The attribute with common texts as categories, sorted: the `at_most` texts with the largest noisy counts.

    A text that is the name of another level of the table (`taken`, as dummy names) stays in `other`.
    """
    reserved = {"other", "", "(missing)", attribute.missing, *map(str, attribute.special)}
    listed = [
        (-count, text)
        for text, count in common.items()
        if text not in reserved and f"{attribute.name}={text}" not in taken
    ]
    values = tuple(sorted(text for _, text in sorted(listed)[: attribute.at_most]))
    return replace(attribute, values=values, domain="found", at_most=0)


def found_edges(attribute: Attribute, levels: Sequence[NDArray[np.int64]], scale: float) -> Attribute:
    """The attribute with at most `at_most` bins of about equal numbers of rows, by noisy counts on every grid level.

    `levels[l]` holds the counts of 4^(l+1) cells. A cell that holds the share of a bin by itself (a common value) gets
    a bin of its own. The outermost edges leave out at each end what noise alone might have put there: bounds are wide,
    and values are spread evenly over their bin. Rows beyond them meet the fate that `outside` says.
    """
    fine = np.asarray(grid(attribute).edges)
    masses = _masses(levels, scale)[: fine.size - 1]
    low, high = attribute.edges
    total = float(masses.sum())
    if total > 0:
        upto = np.concatenate([[0.0], np.cumsum(masses)])
        tail = min(_SOLID * scale, total / attribute.at_most / 2)
        first = int(np.searchsorted(upto, tail, side="right")) - 1
        last = int(np.searchsorted(upto, total - tail))
        starts = first + _fitting(masses[first:last], total, attribute.at_most, least=_SOLID * scale)
        places = np.concatenate([[first], starts, [last]])
    else:
        # Nothing but noise: even bins say as much.
        places = np.linspace(0, masses.size, attribute.at_most + 1).astype(np.int64)
    edges = np.unique(np.clip(fine[places], low, high)).tolist()
    whole = attribute.kind != "real"
    return replace(
        attribute,
        edges=tuple(int(edge) if whole else float(edge) for edge in (edges if len(edges) > 1 else (low, high))),
        domain="found",
        at_most=0,
    )


def _masses(levels: Sequence[NDArray[np.int64]], scale: float) -> NDArray[np.float64]:
    """Non-negative counts of the finest cells: every level is fitted to the one above it, cell by cell."""
    parent = np.array([max(float(levels[0].sum()), 0.0)])
    for noisy in levels:
        children = noisy.reshape(-1, BRANCHES).astype(np.float64)
        children += ((parent - children.sum(axis=1)) / BRANCHES)[:, None]
        fitted = project(children, parent[:, None])
        even = np.repeat(parent[:, None] / BRANCHES, BRANCHES, axis=1)
        parent = np.where((parent > _SOLID * scale)[:, None], fitted, even).ravel()
    return parent


def _fitting(masses: NDArray[np.float64], total: float, at_most: int, least: float) -> NDArray[np.int64]:
    """Where the bins after the first begin: as many bins as are allowed, none meant to hold less than `least`."""
    target = total / at_most
    starts = _starts(masses, target)
    while starts.size >= at_most:
        target *= 1.1
        starts = _starts(masses, target)
    # Common values took more than their share: what they left over is divided more finely.
    while target > least:
        target *= 0.9
        finer = _starts(masses, target)
        if finer.size >= at_most:
            break
        starts = finer
    return starts


def _starts(masses: NDArray[np.float64], target: float) -> NDArray[np.int64]:
    """The cells at which a new bin begins: once the last holds `target`, and around a cell that holds it by itself."""
    upto = np.concatenate([[0.0], np.cumsum(masses)])
    heavy = np.append(np.flatnonzero(masses >= target), masses.size)
    starts, here = [], 0
    while here < masses.size:
        full = int(np.searchsorted(upto, upto[here] + target * (1 - 1e-9)))
        large = int(heavy[np.searchsorted(heavy, here)])
        here = large + 1 if large == here else min(max(full, here + 1), large)
        starts.append(here)
    return np.array([start for start in starts if start < masses.size], dtype=np.int64)
