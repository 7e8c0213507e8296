"""Blocks of codes in which no record holds a forbidden combination.

A record that holds one is drawn anew until it holds none. Each model says what is drawn anew. A latent model draws the
attributes that rules are about, given the others: its records come out as if the other attributes were drawn from the
model as it is, and those of rules from the model given the others and given that all rules hold. The binary copula
draws whole records, so its records are those of the copula given that all rules hold. `hold_margins` moves either model
so that, with the rules, its one-way tables are what they were without.

A repair is a function of (copula, codes, generator) alone, so that a block is still a function of (copula, seed, its
number).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes, blocks, stream
from sklar.errors import ModelError
from sklar.fitting.protocols import Copula
from sklar.machine.threads import in_order
from sklar.public.rules import Allowed, EffortError, SearchSteps, constrained, groups, solve, violating

if TYPE_CHECKING:
    from sklar.fitting.latent import LatentModel

AnyCopula = TypeVar("AnyCopula", bound=Copula)

# Fresh draws of a record before one is searched for. Fits see that forbidden cells are all but empty: few need many.
ROUNDS = 30
_CHUNK = 1024
_EFFORT = 200_000

_HOLD_ROUNDS = 6
_HOLD_ROWS = 1 << 16
_HOLD_SEED = 20_260_301
_LARGEST_STEP = 2.0


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


def repair(codes: Codes, copula: Copula, allowed: Allowed, generator: np.random.Generator) -> None:
    """Draw anew, in place, the records that hold a forbidden combination; codes have shape (m, rows)."""
    broken = np.flatnonzero(violating(codes, allowed))
    for start in range(0, broken.size, _CHUNK):
        part = broken[start : start + _CHUNK]
        codes[:, part] = _redrawn(codes[:, part], copula, allowed, generator)


def _redrawn(codes: Codes, copula: Copula, allowed: Allowed, generator: np.random.Generator) -> Codes:
    """Records in place of these, which all break a rule: drawn until they do not, at last found by search."""
    redraw, left = copula.redrawing(codes, allowed), np.arange(codes.shape[1])
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
            for attribute, level in _found(weights, allowed, generator).items():
                codes[attribute, row] = level
    return codes


def _found(
    weights: Mapping[int, NDArray[np.float64]], allowed: Allowed, generator: np.random.Generator
) -> dict[int, int]:
    """Levels of a group of attributes that honor the rules, by search; likely levels are tried first.

    `weights` say how likely the levels of each of them are over all records.
    """

    def likely(attribute: int, levels: NDArray[np.int64]) -> list[int]:
        # The order of a draw without replacement, by weights (Efraimidis and Spirakis 2006).
        chances = np.maximum(weights[attribute][levels], 1e-12)
        return [int(level) for level in levels[np.argsort(generator.exponential(size=levels.size) / chances)]]

    domains = {attribute: np.ones(own.size, dtype=bool) for attribute, own in weights.items()}
    try:
        found = solve(domains, allowed, effort=SearchSteps(_EFFORT), order=likely)
    except EffortError:
        # The plain search found a record when the schema was loaded.
        found = solve(domains, allowed, effort=SearchSteps(2**62))
    if found is None:
        raise ModelError("no record honors the schema's rules. Load the schema again: it refuses such rules.")
    return found


def hold_margins(copula: AnyCopula) -> AnyCopula:
    """The copula moved so that, with the rules, its one-way tables are what they were without them.

    Fixed simulated rows show how far a repair moves each level. The level's probability is moved back by the same
    factor: in all components of a latent model, for the attributes that rules are about, which alone a repair moves; in
    the margins that a binary copula draws by, for all attributes.
    """
    allowed = copula.schema.allowed
    if not allowed:
        return copula
    wanted = copula.margins()
    for round_ in range(_HOLD_ROUNDS):
        present = copula.margins() + _moved(copula, allowed, _HOLD_SEED + round_)
        step = np.divide(wanted, present, out=np.ones_like(wanted), where=present > 0)
        copula = copula.scaled(np.clip(step, 1 / _LARGEST_STEP, _LARGEST_STEP), allowed)
    return copula


def _moved(copula: Copula, allowed: Allowed, seed: int) -> NDArray[np.float64]:
    """What a repair adds to the probability of each level, shape (d,)."""
    cells = copula.schema.cells
    offsets = cells.offsets[:-1, None]
    moved = np.zeros(cells.n_levels)
    generator = np.random.Generator(np.random.SFC64(seed))
    sampler = copula.sampler()
    for block, rows in blocks(_HOLD_ROWS, sampler.block_rows):
        codes = sampler.draw(seed, block, rows)
        before = np.bincount((codes + offsets).ravel(), minlength=cells.n_levels)
        repair(codes, copula, allowed, generator)
        moved += (np.bincount((codes + offsets).ravel(), minlength=cells.n_levels) - before) / _HOLD_ROWS
    return moved


class RedrawGivenOthers:
    """Draws the attributes that rules are about, given the other attributes of some records."""

    def __init__(self, model: LatentModel, codes: Codes, allowed: Allowed) -> None:
        self._probabilities, self._cells = model.probabilities, model.schema.cells
        self._touched = constrained(allowed)
        others = sorted(set(range(len(codes))) - set(self._touched))
        self._odds = np.cumsum(component_odds(self._probabilities, self._cells.offsets, codes, others), axis=1)

    def __call__(self, codes: Codes, rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Fresh records in place of `codes`, which are those of these rows."""
        fresh = codes.copy()
        component = pick(self._odds[rows], generator)
        for i in self._touched:
            own = self._probabilities[component, self._cells.levels(i)]
            fresh[i] = pick(np.cumsum(own, axis=1, dtype=np.float64), generator)
        return fresh


def component_odds(
    probabilities: NDArray[np.float32], offsets: NDArray[np.int64], codes: Codes, attributes: Sequence[int]
) -> NDArray[np.float64]:
    """How likely each component is beside the likeliest, given these attributes of records: (rows, components)."""
    logs = np.zeros((codes.shape[1], len(probabilities)), dtype=np.float32)
    # Components are equally likely and attributes independent within them, so these products are their odds.
    for i in attributes:
        own = probabilities[:, offsets[i] + codes[i]].T
        logs += np.log(np.maximum(own, np.float32(1e-30)))
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)), dtype=np.float64)


def pick(cumulative: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """One index per row of running totals of weights, shape (rows, choices)."""
    at = generator.random(len(cumulative)) * cumulative[:, -1]
    return np.asarray((cumulative <= at[:, None]).sum(axis=1).clip(max=cumulative.shape[1] - 1))
