"""Blocks of codes in which no record holds a forbidden combination: one that does is drawn anew until it holds none.

A latent model redraws the attributes in rules given the others, which keep the model's law; the binary copula redraws
whole records, by its law given the rules. `hold_margins` moves either model so that its one-way tables are what they
were without rules. A repair is a function of (copula, codes, generator) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from sklar.draw.blocks import Copula, Redraw, blocks, stream
from sklar.errors import ModelError
from sklar.kernel.cells import Cells, Codes, Doubles, Floats, Ints
from sklar.machine.threads import in_order
from sklar.public.rules import Allowed, EffortError, SearchSteps, constrained, groups, solve, violating

AnyCopula = TypeVar("AnyCopula", bound=Copula)

# Fresh draws of a record before one is searched for. Fits see that forbidden cells are all but empty: few need many.
ROUNDS = 30
_CHUNK = 1024
_EFFORT = 200_000
_HOLD_ROUNDS, _HOLD_ROWS, _HOLD_SEED, _LARGEST_STEP = 6, 1 << 16, 20_260_301, 2.0


class RecordSampler:
    """Draws any block of codes of the measured attributes, or of dummies; every record honors the schema's rules."""

    def __init__(self, copula: Copula) -> None:
        self._copula, self._allowed = copula, copula.schema.allowed
        self._sampler = copula.sampler()
        self.block_rows = self._sampler.block_rows

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block, shape (m, rows), or (d, rows) for dummies: a function of (copula, seed, its number, its rows)."""
        codes = self._sampler.draw(seed, block, rows)
        if self._allowed:
            # A stream of its own: a block's draw is the same with and without rules.
            repair(codes, self._copula, self._allowed, stream(seed, block, 2))
        return codes


def sample_codes(copula: Copula, rows: int, seed: int) -> Iterator[Codes]:
    """Blocks of codes of the measured attributes, or of dummies, `rows` rows in all."""
    sampler = RecordSampler(copula)
    return in_order(lambda block: sampler.draw(seed, *block), blocks(rows, sampler.block_rows))


def repair(
    codes: Codes, copula: Copula, allowed: Allowed, generator: np.random.Generator, fixed: Sequence[int] = ()
) -> None:
    """Draw anew, in place, the records that hold a forbidden combination; codes have shape (m, rows).

    Of a latent model, some attributes may be `fixed`: they stay as they are, where any record with them honors rules.
    """
    broken = np.flatnonzero(violating(codes, allowed))
    for start in range(0, broken.size, _CHUNK):
        part = broken[start : start + _CHUNK]
        codes[:, part] = _redrawn(codes[:, part], copula, allowed, generator, fixed)


def _redrawn(
    codes: Codes, copula: Copula, allowed: Allowed, generator: np.random.Generator, fixed: Sequence[int]
) -> Codes:
    """Records in place of these, which all break a rule: drawn until they do not, at last found by search."""
    redraw, left = copula.redrawing(codes, allowed, fixed), np.arange(codes.shape[1])
    codes = codes.copy()
    for _ in range(ROUNDS):
        codes[:, left] = redraw(codes[:, left], left, generator)
        left = left[violating(codes[:, left], allowed)]
        if left.size == 0:
            return codes
    cells, margins = copula.schema.cells, copula.margins()
    for group in groups(allowed):
        weights = {i: margins[cells.levels(i)] for i in group}
        for row in left:
            held = {i: int(codes[i, row]) for i in fixed if i in weights}
            for attribute, level in _searched(weights, allowed, generator, held).items():
                codes[attribute, row] = level
    return codes


def _searched(
    weights: Mapping[int, Doubles], allowed: Allowed, generator: np.random.Generator, held: Mapping[int, int]
) -> dict[int, int]:
    """Levels of attributes, of some those that are `held`, that honor the rules; likely ones are tried first."""

    def likely(attribute: int, levels: Ints) -> list[int]:
        # The order of a draw without replacement, by weights (Efraimidis and Spirakis 2006).
        chances = np.maximum(weights[attribute][levels], 1e-12)
        return [int(level) for level in levels[np.argsort(generator.exponential(size=levels.size) / chances)]]

    domains = {attribute: np.ones(own.size, dtype=bool) for attribute, own in weights.items()}
    domains |= {attribute: np.arange(domains[attribute].size) == level for attribute, level in held.items()}
    try:
        levels = solve(domains, allowed, effort=SearchSteps(_EFFORT), order=likely)
    except EffortError:
        # The plain search found a record when the schema was loaded.
        levels = solve(domains, allowed, effort=SearchSteps(2**62))
    if levels is None:
        raise ModelError("no record honors the schema's rules. Load the schema again: it refuses such rules.")
    return levels


def hold_margins(copula: AnyCopula) -> AnyCopula:
    """The copula moved so that, with the rules, its one-way tables are what they were without them.

    Fixed simulated rows show how far a repair moves each level. Its probability is moved back by the same factor.
    """
    allowed = copula.schema.allowed
    if not allowed:
        return copula
    target = copula.margins()
    for round_ in range(_HOLD_ROUNDS):
        present = copula.margins() + _moved(copula, allowed, _HOLD_SEED + round_)
        step = np.divide(target, present, out=np.ones_like(target), where=present > 0)
        copula = copula.scaled(np.clip(step, 1 / _LARGEST_STEP, _LARGEST_STEP), allowed)
    return copula


def _moved(copula: Copula, allowed: Allowed, seed: int) -> Doubles:
    """What a repair adds to the probability of each level, shape (d,)."""
    cells, sampler, generator = copula.schema.cells, copula.sampler(), np.random.Generator(np.random.SFC64(seed))
    offsets, moved = cells.offsets[:-1, None], np.zeros(cells.n_levels)
    for block, rows in blocks(_HOLD_ROWS, sampler.block_rows):
        codes = sampler.draw(seed, block, rows)
        before = np.bincount((codes + offsets).ravel(), minlength=cells.n_levels)
        repair(codes, copula, allowed, generator)
        moved += (np.bincount((codes + offsets).ravel(), minlength=cells.n_levels) - before) / _HOLD_ROWS
    return moved


def redraw_given_others(
    probabilities: Floats, cells: Cells, codes: Codes, allowed: Allowed, fixed: Sequence[int] = ()
) -> Redraw:
    """Draws the attributes that rules are about, but for those that are `fixed`, given all others of these records."""
    touched = [i for i in constrained(allowed) if i not in fixed]
    others = [i for i in range(len(codes)) if i not in touched]
    odds = np.cumsum(component_odds(probabilities, cells.offsets, codes, others), axis=1)

    def redraw(codes: Codes, rows: Ints, generator: np.random.Generator) -> Codes:
        fresh, component = codes.copy(), pick(odds[rows], generator)
        for i in touched:
            own = probabilities[component, cells.levels(i)]
            fresh[i] = pick(np.cumsum(own, axis=1, dtype=np.float64), generator)
        return fresh

    return redraw


def component_odds(probabilities: Floats, offsets: Ints, codes: Codes, attributes: Sequence[int]) -> Doubles:
    """How likely each component is beside the likeliest, given these attributes of records: (rows, components)."""
    logs = np.zeros((codes.shape[1], len(probabilities)), dtype=np.float32)
    # Components are equally likely and attributes independent within them, so these products are their odds.
    for i in attributes:
        own = probabilities[:, offsets[i] + codes[i]].T
        logs += np.log(np.maximum(own, np.float32(1e-30)))
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)), dtype=np.float64)


def pick(cumulative: Doubles, generator: np.random.Generator) -> Ints:
    """One index per row of running totals of weights, shape (rows, choices)."""
    at = generator.random(len(cumulative)) * cumulative[:, -1]
    return np.asarray((cumulative <= at[:, None]).sum(axis=1).clip(max=cumulative.shape[1] - 1))
