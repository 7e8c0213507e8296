"""Records under a condition, or with some levels given: components reweighted, levels restricted. The derivation:
docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS, LatentSampler, stream
from sklar.draw.repair import RecordSampler, component_odds, pick, repair
from sklar.errors import ModelError
from sklar.kernel.cells import Codes, Doubles, Floats, Ints
from sklar.machine.wording import said
from sklar.public.rules import Allowed, SearchSteps, constrained, groups, narrowed, solve, violating

if TYPE_CHECKING:
    from sklar.draw.blocks import Copula
    from sklar.public.schema import Schema

# A box: the levels that it allows of some of the measured attributes.
Box = Mapping[int, NDArray[np.bool_]]

# Probabilities that the components of all boxes may have together (1 GB), and numbers in a table of a sum over rules.
_MOST_PROBABILITIES, _MOST_SUMMED = 1 << 28, 1 << 26
# Records whose components are weighed at once.
_CHUNK = 2048
# Records that are drawn for each one that is kept, and for so many more at first, before a condition is too rare.
_MOST_DRAWN, _FIRST = 10_000, 100
# Records that are filled in at once, and fresh draws of one that rules have a say in, before one is searched for.
_FILLED, _FRESH = 1024, 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """What drawn records satisfy: that they lie in one of disjoint boxes.

    `schema` is the model's, with bins divided where the condition cuts them. `origin` says which level of the model
    each measured level is part of, and `share` how much of it, shape (d,).
    """

    schema: Schema
    origin: Ints
    share: Doubles
    boxes: tuple[Box, ...]
    text: str


def given_sampler(copula: Copula, condition: Condition) -> GivenSampler | RejectingSampler:
    """Draws records of this model that satisfy the condition; an impossible one is refused."""
    boxes, components = _possible(condition), copula.components()
    if components is None:
        return RejectingSampler(copula, condition)
    if len(boxes) * len(components) * condition.origin.size > _MOST_PROBABILITIES:
        raise ModelError(said("draw.cases", condition=condition.text, n=len(boxes)))
    parts = components[:, condition.origin] * condition.share.astype(np.float32)
    condition = replace(condition, boxes=boxes)
    schema, honored = condition.schema.measured, None
    if set().union(*condition.boxes) & set(constrained(schema.allowed)):
        honored = chance_of_rules(parts, schema.cells.offsets, schema.allowed)
        if honored is None:
            return RejectingSampler(copula, condition)
    return GivenSampler(parts, int(copula.describe().get("rounds", 0)), condition, honored)


def _possible(condition: Condition) -> tuple[Box, ...]:
    """The boxes that hold a record which honors the rules, without the levels that have no part in any."""
    schema, kept = condition.schema.measured, []
    touched = constrained(schema.allowed)
    for box in condition.boxes:
        domains = {i: box.get(i, np.ones(int(schema.sizes[i]), dtype=bool)) for i in touched}
        left = narrowed(domains, schema.allowed)
        if left is not None:
            kept.append({**box, **{i: levels for i, levels in left.items() if i in box or not levels.all()}})
    if not condition.boxes:
        raise _impossible(condition, "no level of its attributes does")
    if not kept:
        raise _impossible(condition, "its levels and the schema's rules exclude one another")
    return tuple(kept)


def _impossible(condition: Condition, why: str) -> ModelError:
    return ModelError(f"no record can satisfy the condition {condition.text}: {why}. Ask for less.")


class GivenSampler:
    """Draws blocks of records of a latent model with the divided levels' `probabilities` under a condition.

    `honored` are components' chances that the rules hold, where these have a say in what the condition is about.
    """

    def __init__(self, probabilities: Floats, rounds: int, condition: Condition, honored: Doubles | None) -> None:
        # Not at the top: the model's module imports this room.
        from sklar.fitting.latent import LatentModel

        schema = condition.schema.measured
        self._condition, self._honored = condition, honored
        self._model = LatentModel(schema=schema, probabilities=probabilities, rounds=rounds)
        parts, weights = [], []
        for box in condition.boxes:
            own, weight = probabilities.copy(), np.ones(len(probabilities))
            for i, levels in box.items():
                held = probabilities[:, schema.cells.levels(i)] * levels
                mass = held.sum(axis=1, dtype=np.float64, keepdims=True)
                weight *= mass[:, 0]
                own[:, schema.cells.levels(i)] = np.divide(held, mass, out=np.zeros_like(held), where=mass > 0)
            parts.append(own[weight > 0])
            weights.append(weight[weight > 0])
        chances = np.concatenate(weights)
        if chances.sum() <= 0:
            raise _impossible(condition, "the model gives it no chance")
        restricted = replace(self._model, probabilities=np.concatenate(parts))
        self._sampler = LatentSampler(restricted, chances / chances.sum())
        self.block_rows = self._sampler.block_rows

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows): a function of (model, condition, seed, its number, its rows)."""
        generator, mending = stream(seed, block, 3), stream(seed, block, 4)
        schema, honored = self._model.schema, self._honored
        if honored is None:
            codes = self._sampler.draw_by(generator, rows)
            if schema.allowed:
                repair(codes, self._model, schema.allowed, mending)
            return codes

        def some(wanted: int, drawn: int) -> tuple[int, Codes]:
            # As many again as were drawn: few rounds where few are kept.
            number = min(max(2 * wanted, drawn, 64), BLOCK_ROWS)
            codes = self._sampler.draw_by(generator, number)
            codes = codes[:, ~violating(codes, schema.allowed)]
            chances = keeping_chances(self._model.probabilities, schema, codes, honored)
            return number, codes[:, mending.random(codes.shape[1]) < chances]

        return _draw_until(rows, some, self._condition)


def _draw_until(rows: int, some: Callable[[int, int], tuple[int, Codes]], condition: Condition) -> Codes:
    """This many records. `some` takes how many are missing and were drawn: how many it draws, and those to keep."""
    kept: list[Codes] = []
    have = drawn = 0
    while have < rows or not kept:
        if drawn > _MOST_DRAWN * (have + _FIRST):
            raise ModelError(said("draw.too_rare", condition=condition.text))
        number, codes = some(rows - have, drawn)
        kept.append(codes[:, : rows - have])
        have, drawn = have + kept[-1].shape[1], drawn + number
    return np.concatenate(kept, axis=1)


def keeping_chances(probabilities: Floats, schema: Schema, codes: Codes, honored: Doubles) -> Doubles:
    """Chances in proportion to 1 / P(ok | o) for records that honor the rules, shape (rows,), the largest at most 1."""
    others = sorted(set(range(len(codes))) - set(constrained(schema.allowed)))
    if not others:
        return np.ones(codes.shape[1])
    least, chances = honored.min(), [np.empty(0)]
    for start in range(0, codes.shape[1], _CHUNK):
        odds = component_odds(probabilities, schema.cells.offsets, codes[:, start : start + _CHUNK], others)
        chances.append(least * odds.sum(axis=1) / (odds @ honored))
    return np.concatenate(chances)


class RejectingSampler:
    """Draws records of a model without components until enough satisfy a condition."""

    def __init__(self, copula: Copula, condition: Condition) -> None:
        self._condition, self._sampler, self.block_rows = condition, RecordSampler(copula), BLOCK_ROWS
        model, finer = copula.schema.cells, condition.schema.measured.cells
        # Where a level is divided, the parts that it has and running totals of their shares.
        self._parts: list[tuple[int, int, Ints, Doubles]] = []
        self._whole = []
        for i in range(model.n_attributes):
            origin = condition.origin[finer.levels(i)] - model.offsets[i]
            whole = np.zeros(int(model.sizes[i]), dtype=np.int64)
            whole[origin] = np.arange(origin.size)
            self._whole.append(whole)
            for level in np.flatnonzero(np.bincount(origin, minlength=whole.size) > 1):
                parts = np.flatnonzero(origin == level)
                self._parts.append((i, int(level), parts, np.cumsum(condition.share[finer.levels(i)][parts])))

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block of codes, shape (m, rows): a function of (copula, condition, seed, its number, its rows)."""
        generator = stream(seed, block, 3)

        def some(_wanted: int, drawn: int) -> tuple[int, Codes]:
            inner = np.random.SeedSequence([seed, block, 5, drawn // BLOCK_ROWS]).generate_state(1, np.uint64)
            codes = self._divided(self._sampler.draw(int(inner[0] >> np.uint64(1)), 0, BLOCK_ROWS), generator)
            held = np.zeros(codes.shape[1], dtype=bool)
            for box in self._condition.boxes:
                held |= np.logical_and.reduce([levels[codes[i]] for i, levels in box.items()] or [~held])
            return BLOCK_ROWS, codes[:, held]

        return _draw_until(rows, some, self._condition)

    def _divided(self, codes: Codes, generator: np.random.Generator) -> Codes:
        """Codes of the divided levels: the part of a level is drawn by its share."""
        finer = np.stack([whole[own] for whole, own in zip(self._whole, codes, strict=True)])
        for i, level, parts, upto in self._parts:
            rows = np.flatnonzero(codes[i] == level)
            at = np.searchsorted(upto, generator.random(rows.size) * upto[-1], side="right")
            finer[i, rows] = parts[np.minimum(at, parts.size - 1)]
        return finer


def chance_of_rules(probabilities: Floats, offsets: Ints, allowed: Allowed) -> Doubles | None:
    """The chance that a component's record honors all rules, shape (components,); None where the sum is too large."""
    chance = np.ones(len(probabilities))
    for group in groups(allowed):
        if len(group) >= len(ascii_letters):
            return None
        # Axes by letter: that of components, and one for each attribute.
        first, axes = ascii_letters[-1], dict(zip(sorted(group), ascii_letters, strict=False))
        chances = probabilities.astype(np.float64)
        tables = {first + axis: chances[:, offsets[i] : offsets[i + 1]] for i, axis in axes.items()}
        tables |= {axes[i] + axes[j]: free.astype(np.float64) for (i, j), free in allowed.items() if i in group}
        sizes = {axis: size for names, table in tables.items() for axis, size in zip(names, table.shape, strict=True)}
        names = f"{','.join(tables)}->{first}"
        path, _ = np.einsum_path(names, *tables.values(), optimize="greedy")
        # What each product of tables ranges over, before anything is summed out of it.
        left = [set(each) for each in tables]
        for chosen in path[1:]:
            joined = set().union(*(left.pop(at) for at in sorted(chosen, reverse=True)))
            if math.prod(sizes[axis] for axis in joined) > _MOST_SUMMED:
                return None
            left.append(joined & {first}.union(*left))
        chance *= np.einsum(names, *tables.values(), optimize=path)
    return chance


def condition_boxes(held: NDArray[np.bool_], classes: Mapping[int, Ints]) -> Iterator[dict[int, NDArray[np.bool_]]]:
    """Disjoint boxes that hold what a condition does.

    `classes` gives each attribute's levels numbers of classes that the condition does not tell apart, and `held` says
    for each combination of classes, one axis per attribute in order, whether the condition holds.
    """
    cells = [tuple(frozenset([k]) for k in place) for place in np.argwhere(held).tolist()]
    for axis in range(held.ndim):
        merged: dict[tuple[frozenset[int], ...], frozenset[int]] = {}
        for cell in cells:
            others = (*cell[:axis], *cell[axis + 1 :])
            merged[others] = merged.get(others, frozenset()) | cell[axis]
        cells = [(*others[:axis], own, *others[axis:]) for others, own in merged.items()]
    for cell in cells:
        masks = {i: np.isin(classes[i], list(chosen)) for i, chosen in zip(classes, cell, strict=True)}
        yield {i: mask for i, mask in masks.items() if not mask.all()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Domains:
    """The levels that one attribute may have, row by row: `allowed`, shape (kinds, levels), by each row's kind."""

    allowed: NDArray[np.bool_]
    kinds: Ints


def fill(copula: Copula, domains: Sequence[Domains], seed: int) -> Codes:
    """Codes of the measured attributes, shape (m, rows), each within its domain, from the model given the domains."""
    components = copula.components()
    if components is None:
        raise ModelError(said("draw.no_components", kind=copula.kind))
    filling, every = _Filling(copula, components, domains), np.arange(domains[0].kinds.size)
    parts = (every[start : start + _FILLED] for start in range(0, every.size, _FILLED))
    codes = [filling.draw(rows, stream(seed, number, 7)) for number, rows in enumerate(parts)]
    return np.concatenate([np.empty((len(domains), 0), dtype=np.int64), *codes], axis=1)


class _Filling:
    """Draws records given their domains; rows that no record which honors the rules completes are refused."""

    def __init__(self, copula: Copula, components: Floats, domains: Sequence[Domains]) -> None:
        self._copula, self._probabilities, self._domains = copula, components, domains
        cells, self._allowed = copula.schema.cells, copula.schema.allowed
        self._levels = [cells.levels(i) for i in range(len(domains))]
        # The chance of each kind of domain in each component, shape (components, kinds).
        self._masses = [
            np.maximum(components[:, levels] @ own.allowed.T.astype(np.float32), np.float32(1e-30))
            for levels, own in zip(self._levels, domains, strict=True)
        ]
        self._touched, self._honored = constrained(self._allowed), None
        if self._touched:
            self._honored = chance_of_rules(components, cells.offsets, self._allowed)
            kinds = np.stack([domains[i].kinds for i in self._touched])
            for row in np.unique(kinds, axis=1, return_index=True)[1].tolist():
                self._search(row)

    def draw(self, rows: Ints, generator: np.random.Generator) -> Codes:
        """Codes of these rows."""
        logs = np.zeros((rows.size, len(self._probabilities)), dtype=np.float32)
        for mass, own in zip(self._masses, self._domains, strict=True):
            logs += np.log(mass)[:, own.kinds[rows]].T
        upto = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64), axis=1)
        codes = self._fresh(rows, upto, generator)
        if not self._touched:
            return codes
        tied = np.zeros(rows.size, dtype=bool)
        for i in self._touched:
            tied |= ~np.asarray(self._domains[i].allowed.all(axis=1))[self._domains[i].kinds[rows]]
        free, left = np.flatnonzero(~tied), np.flatnonzero(tied)
        mended = codes[:, free]
        repair(mended, self._copula, self._allowed, generator)
        codes[:, free] = mended
        fresh = codes[:, left]
        for _ in range(_FRESH):
            kept = ~violating(fresh, self._allowed)
            if self._honored is not None:
                chances = keeping_chances(self._probabilities, self._copula.schema, fresh, self._honored)
                kept &= generator.random(left.size) < chances
            codes[:, left[kept]] = fresh[:, kept]
            left = left[~kept]
            if left.size == 0:
                return codes
            fresh = self._fresh(rows[left], upto[left], generator)
        for place in left:
            for i, level in self._search(int(rows[place])).items():
                codes[i, place] = level
        return codes

    def _fresh(self, rows: Ints, upto: Doubles, generator: np.random.Generator) -> Codes:
        """Records of these rows within their domains, by components drawn by running totals of their odds."""
        component = pick(upto, generator)
        codes = np.empty((len(self._domains), rows.size), dtype=np.int64)
        for i, (levels, own) in enumerate(zip(self._levels, self._domains, strict=True)):
            # Where a component gives a domain no chance, all of its levels are as likely.
            chances = np.maximum(self._probabilities[component, levels], np.float32(1e-30))
            codes[i] = pick(np.cumsum(chances * own.allowed[own.kinds[rows]], axis=1, dtype=np.float64), generator)
        return codes

    def _search(self, row: int) -> dict[int, int]:
        """Levels of the attributes that rules are about, within the row's domains; a row that has none is refused."""
        own = {i: self._domains[i].allowed[self._domains[i].kinds[row]] for i in self._touched}
        levels = solve(own, self._allowed, effort=SearchSteps(2**62))
        if levels is None:
            raise ModelError(f"row {row + 1:,} breaks a rule of the schema, whatever is filled in. Correct the row.")
        return levels
