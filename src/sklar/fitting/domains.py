"""Noisy answers to domains: common categories, and bins and points by the density of noisy tables: post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import Measured
from sklar.budget.search import Ladder, Search, Units, asked_of, ladder_of
from sklar.fitting.density import Density, estimate_density, searched
from sklar.kernel.queries import Block
from sklar.public.codelists import natural
from sklar.public.outputs import grain
from sklar.public.schema import Attribute, Domain, Schema

# A heap is a level of its own where it holds at least this part of what a level holds on average.
_HEAP_SHARE = 0.25
# Of all levels, those that heaps may take, or as many as they have of the rows; a real without a step is a value where
# it is a multiple of so many grains, else longer than they tell.
_MOST_HEAPS, _VALUE = 1 / 3, 100
# A bin is meant to hold at least this part of it: finer ones are left to the shape inside a bin.
_BIN_SHARE = 0.15
# A bin is divided at the roundest number that leaves at least this part of its rows on either side.
_SNAP = 0.3
# The power of a bin's width that counts beside its rows.
_WIDTH = 0.25


def find_domains(schema: Schema, search: Search, blocks: Sequence[Block]) -> Schema:
    """The schema with its private domains as the noisy blocks have them. Rules speak of public domains alone."""
    if not schema.private_domains:
        return schema
    found = {attribute.name: attribute for attribute in schema.attributes}
    public = tuple(attribute for attribute in schema.attributes if not attribute.private)
    taken = frozenset(Schema(name="", attributes=public).dummy_names)
    for attribute in schema.private_domains:
        ladder = None if attribute.categorical else ladder_of(attribute)
        if ladder is not None and ladder.tables == 0:
            # Every grain between its bounds is a level: so few that there is nothing to search.
            grains = np.arange(ladder.low, ladder.high + 1)
            found[attribute.name] = _with_levels(replace(attribute, clip=None), ladder, grains, (), domain="public")
    rounds: dict[str, list[Block]] = {}
    for finding, own in searched(search.findings, blocks):
        attribute = schema.attribute(finding.attribute)
        if own[0].keys is not None:
            rounds.setdefault(attribute.name, []).extend(own)
        elif finding.of == "domain":
            found[attribute.name] = found_numbers(attribute, [block.values for block in own], finding.scale)
    for name, own in rounds.items():
        found[name] = found_values(schema.attribute(name), common_counts(own), taken)
        taken |= {f"{name}={level}" for level in found[name].levels}
    whole = schema.whole or schema
    attributes = tuple(found.get(attribute.name, attribute) for attribute in whole.attributes)
    return replace(whole, attributes=attributes).checked().measured


def domain_faults(measured: Measured) -> tuple[str, ...]:
    """The attributes whose bins and points are not those that their noisy blocks give."""
    faults = []
    for finding, own in searched(measured.certificate.domains, measured.blocks):
        if own[0].keys is None and finding.of == "domain":
            found = measured.schema.attribute(finding.attribute)
            asked, tables = asked_of(finding, found), [block.values for block in own]
            again = found_numbers(asked, tables, finding.scale)
            if (again.edges, again.points) != (found.edges, found.points):
                faults.append(finding.attribute)
    return tuple(faults)


def common_counts(blocks: Sequence[Block]) -> dict[str, float]:
    """The values that any round listed, with their noisy counts: of two rounds, weighted by inverse variances."""
    sums: dict[str, tuple[float, float]] = {}
    for block in blocks:
        weight = float(block.scales[0]) ** -2.0
        for text, count in zip(block.keys or (), block.values.tolist(), strict=True):
            total, weights = sums.get(text, (0.0, 0.0))
            sums[text] = total + weight * count, weights + weight
    return {text: total / weights for text, (total, weights) in sums.items()}


def found_values(attribute: Attribute, common: Mapping[str, float], taken: frozenset[str]) -> Attribute:
    """The attribute with the `at_most` texts of the largest noisy counts as categories, sorted.

    A text that is the name of another level of the table (`taken`, as dummy names) stays in `other`.
    """
    reserved = {"other", "", "(missing)", attribute.missing, *map(str, attribute.special)}
    free = {text for text in common if text not in reserved and f"{attribute.name}={text}" not in taken}
    largest = sorted(free, key=lambda text: (-common[text], text))[: attribute.at_most]
    values = tuple(sorted(largest, key=natural))
    words = attribute.words
    if attribute.reviewed == "unread":
        # What nobody read names no value that noise did not find.
        words = replace(words, labels=tuple(each for each in words.labels if each[0] in values))
    return replace(attribute, values=values, domain="found", at_most=0, words=words)


def found_numbers(attribute: Attribute, tables: Sequence[NDArray[np.int64]], scale: float) -> Attribute:
    """The attribute with at most `at_most` levels: heaps, bins of about equal rows, one or two where some may be."""
    ladder = ladder_of(attribute)
    density = estimate_density(ladder, tables, scale)
    total = float(density.masses.sum())
    # The last of whole numbers is the clip, which stands for all that is larger.
    ends = (ladder.high - 1,) if attribute.clip is not None and not attribute.axis.continuous else ()
    if total <= 0:
        first = ladder.first()
        kept = np.unique(np.linspace(0, first.size - 1, attribute.at_most + 1).astype(np.int64))
        return _with_levels(attribute, ladder, _roomy(first[kept], ends, ladder) if ends else first[kept], ends)
    # Heaps that are levels of their own, in grains.
    heavy = density.heaps[density.masses[density.heaps] >= _HEAP_SHARE * total / attribute.at_most]
    most = max(_MOST_HEAPS, float(density.masses[heavy].sum()) / total) * (attribute.at_most - 1)
    if attribute.kind == "real" and grain(attribute) is None:
        # A value that differs from its grain in a digit more would have a level that nobody is in.
        heavy = heavy[density.edges[heavy] % _VALUE == 0]
    heaviest = heavy[np.argsort(-density.masses[heavy], kind="stable")][: int(most)]
    points = tuple(sorted({*density.edges[heaviest].tolist(), *ends}))
    tails = density.tails[: max(attribute.at_most - len(points) - 1, 0)]
    bins = max(attribute.at_most - len(points) - len(tails), 1)
    edges = _edges(ladder, density, points, bins, _BIN_SHARE * total / attribute.at_most)
    if tails:
        # What lies between the support and a tail is counted with what is below, and drawn there.
        edges = np.concatenate([edges[:-1], [start for start, _ in tails], [tails[-1][1]]])
    if attribute.clip is not None:
        edges = np.append(edges[:-1], ladder.high)
    return _with_levels(attribute, ladder, _roomy(edges, points, ladder), points)


def _edges(ladder: Ladder, density: Density, points: Sequence[int], bins: int, least: float) -> Units:
    """Edges of bins: the heaviest, by rows and a little by width, is divided at the roundest number near its middle."""
    masses = np.where(np.isin(density.edges[:-1], points) & (np.diff(density.edges) == 1), 0.0, density.masses)
    upto = np.concatenate([[0.0], np.cumsum(masses)])
    # Where nobody is, the function is flat and its inverse ambiguous: a hair of slope decides.
    upto += upto[-1] * 1e-9 * np.linspace(0.0, 1.0, upto.size)

    def rows(low: int, high: int) -> float:
        return float(np.diff(np.interp([low, high], density.edges, upto))[0])

    found = [density.first, density.last]
    closed: set[tuple[int, int]] = set()
    while len(found) <= bins:
        open_bins = [pair for pair in pairwise(found) if pair not in closed and rows(*pair) >= 2 * least]
        if not open_bins:
            break
        low, high = max(open_bins, key=lambda pair: rows(*pair) * float(pair[1] - pair[0]) ** _WIDTH)
        middle = np.interp([low, high], density.edges, upto) @ [[1 - _SNAP, _SNAP], [_SNAP, 1 - _SNAP]]
        nearest = np.interp(middle, upto, density.edges)
        edge = ladder.roundest(int(np.ceil(nearest[0])), int(np.floor(nearest[1])))
        if low < edge < high:
            found = sorted([*found, edge])
        else:
            closed.add((low, high))
    return np.array(found)


def _roomy(edges: Units, points: Sequence[int], ladder: Ladder) -> Units:
    """The edges without those that would leave a bin nothing but points."""
    kept = [int(edges[0])]
    for edge in edges[1:].tolist():
        if edge - kept[-1] > sum(kept[-1] <= point < edge for point in points):
            kept.append(edge)
    if len(kept) == 1:
        # All that was seen is heaps: one bin beside them, for whoever is elsewhere.
        return np.array([ladder.low, ladder.high])
    return np.array([*kept[:-1], int(edges[-1])])


def _with_levels(
    attribute: Attribute, ladder: Ladder, edges: Units, points: Sequence[int], *, domain: Domain = "found"
) -> Attribute:
    """The attribute with these edges and points, given in grains, as numbers on its axis within its bounds."""
    low, high = attribute.edges[0], attribute.edges[-1]
    whole, clip = not attribute.axis.continuous, () if attribute.clip is None else (attribute.clip,)
    placed = np.unique(np.clip(ladder.axis(edges), low, high)).tolist()
    if len(placed) < 2:
        placed = [low, high]
    stated = {point for point in ladder.axis(np.array(points, dtype=np.int64)).tolist() if low <= point < placed[-1]}
    return replace(
        attribute,
        edges=tuple(int(edge) if whole else float(edge) for edge in placed),
        points=tuple(sorted({*attribute.points, *clip, *(int(point) if whole else float(point) for point in stated)})),
        domain=domain,
        at_most=0,
    )
