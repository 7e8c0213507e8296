"""Blocks of codes in which no record holds a forbidden combination.

Let G be the attributes that forbidden combinations are about. Records of a latent model come out as if the attributes
outside G were drawn from the model as it is, and those of G from the model given the others and given that all rules
hold. So whatever is said of attributes outside G is not touched. Records of the binary copula are drawn whole, given
that all rules hold. `settle` moves either so that, with the rules, its one-way tables are what they were without.

A repair is a function of (copula, codes, generator) alone, so that a block is still one of (copula, seed, its number).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sklar.budget.certificate import block_of_level
from sklar.draw.blocks import Codes, blocks
from sklar.errors import ModelError
from sklar.fitting.binary import BinaryCopula, BinarySampler, draw_records
from sklar.fitting.latent import LatentModel, LatentSampler
from sklar.machine.threads import in_order
from sklar.public.rules import constrained, violating
from sklar.public.schema import Schema
from sklar.public.solve import Allowed, Effort, EffortError, groups, solve

Copula = TypeVar("Copula", BinaryCopula, LatentModel)

# Fresh draws of a record before one is searched for. Fits see that forbidden cells are all but empty: few need many.
ROUNDS = 30
_CHUNK = 1024
_EFFORT = 200_000

_SETTLE_ROUNDS = 6
_SETTLE_ROWS = 1 << 16
_SETTLE_SEED = 20_260_301
_LARGEST_STEP = 2.0


class RecordSampler:
    """Draws any block of codes of the measured attributes, or of dummies; every record honors the schema's rules."""

    def __init__(self, copula: BinaryCopula | LatentModel) -> None:
        self._copula, self._allowed = copula, copula.schema.allowed
        self._sampler = LatentSampler(copula) if isinstance(copula, LatentModel) else BinarySampler(copula)

    def draw(self, seed: int, block: int, rows: int) -> Codes:
        """A block, shape (m, rows), or (d, rows) for dummies: a function of (copula, seed, its number, its rows)."""
        codes = _whole(self._sampler.draw(seed, block, rows))
        if self._allowed:
            # A stream of its own: a block's draw is the same with and without rules.
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, block, 2])))
            repair(codes, self._copula, self._allowed, generator)
        return codes


def _whole(drawn: Codes | NDArray[np.bool_]) -> Codes:
    """Dummies as numbers 0 and 1, without a copy."""
    return drawn.view(np.uint8) if drawn.dtype == np.bool_ else cast(Codes, drawn)


def sample_codes(copula: BinaryCopula | LatentModel, rows: int, seed: int) -> Iterator[Codes]:
    """Blocks of codes of the measured attributes, or of dummies, `rows` rows in all."""
    sampler = RecordSampler(copula)
    return in_order(lambda block: sampler.draw(seed, *block), blocks(rows))


def repair(codes: Codes, copula: BinaryCopula | LatentModel, allowed: Allowed, generator: np.random.Generator) -> None:
    """Draw anew, in place, the records that hold a forbidden combination; codes have shape (m, rows)."""
    broken = np.nonzero(violating(codes, allowed))[0]
    for start in range(0, broken.size, _CHUNK):
        part = broken[start : start + _CHUNK]
        if isinstance(copula, LatentModel):
            codes[:, part] = _redrawn(codes[:, part], allowed, generator, _Conditional(codes[:, part], copula, allowed))
        else:
            codes[:, part] = _redrawn(codes[:, part], allowed, generator, _Fresh(copula))


class _Conditional:
    """Draws of the attributes in rules from a latent model, given the other attributes of some records."""

    def __init__(self, codes: Codes, model: LatentModel, allowed: Allowed) -> None:
        self._model, self._touched = model, constrained(allowed)
        offsets = model.schema.offsets
        logs = np.zeros((codes.shape[1], model.n_components), dtype=np.float32)
        # Components are equally likely and attributes independent within them, so these products are their odds.
        for i in set(range(len(codes))) - set(self._touched):
            logs += np.log(np.maximum(model.probabilities[:, offsets[i] + codes[i]].T, np.float32(1e-30)))
        odds = np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64)
        self._odds = np.cumsum(odds, axis=1)

    def __call__(self, codes: Codes, rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Fresh records in place of `codes`, which are those of these rows."""
        fresh, offsets = codes.copy(), self._model.schema.offsets
        component = _pick(self._odds[rows], generator)
        for i in self._touched:
            own = self._model.probabilities[component, offsets[i] : offsets[i + 1]]
            fresh[i] = _pick(np.cumsum(own, axis=1, dtype=np.float64), generator)
        return fresh

    def weights(self, attribute: int) -> NDArray[np.float64]:
        """How likely the levels of an attribute are over all records."""
        first, last = self._model.schema.offsets[attribute : attribute + 2]
        return np.asarray(self._model.probabilities[:, first:last].mean(axis=0, dtype=np.float64))


class _Fresh:
    """Whole records from the binary copula."""

    def __init__(self, copula: BinaryCopula) -> None:
        self._copula = copula

    def __call__(self, codes: Codes, _rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Fresh records, as many as `codes` holds."""
        return draw_records(self._copula, codes.shape[1], generator)

    def weights(self, attribute: int) -> NDArray[np.float64]:
        """How likely the levels of an attribute are over all records."""
        first, last = self._copula.schema.offsets[attribute : attribute + 2]
        return self._copula.levels[first:last]


def _pick(cumulative: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """One index per row of running totals of weights, shape (rows, choices)."""
    at = generator.random(len(cumulative)) * cumulative[:, -1]
    return np.asarray((cumulative <= at[:, None]).sum(axis=1).clip(max=cumulative.shape[1] - 1))


def _redrawn(codes: Codes, allowed: Allowed, generator: np.random.Generator, draw: _Conditional | _Fresh) -> Codes:
    """Records in place of these, all of which break a rule: drawn until they do not, at last found by search."""
    codes, left = codes.copy(), np.arange(codes.shape[1])
    for _ in range(ROUNDS):
        codes[:, left] = draw(codes[:, left], left, generator)
        left = left[violating(codes[:, left], allowed)]
        if left.size == 0:
            return codes
    for group in groups(allowed):
        domains = {i: np.ones(draw.weights(i).size, dtype=bool) for i in group}
        for row in left:
            for attribute, level in _found(domains, allowed, generator, draw).items():
                codes[attribute, row] = level
    return codes


def _found(
    domains: Mapping[int, NDArray[np.bool_]],
    allowed: Allowed,
    generator: np.random.Generator,
    draw: _Conditional | _Fresh,
) -> dict[int, int]:
    """Levels of a group of attributes that honor the rules, by search; likely levels are tried first."""

    def likely(attribute: int, levels: NDArray[np.int64]) -> list[int]:
        # The order of a draw without replacement, by weights (Efraimidis and Spirakis 2006).
        weights = np.maximum(draw.weights(attribute)[levels], 1e-12)
        return [int(level) for level in levels[np.argsort(generator.exponential(size=levels.size) / weights)]]

    try:
        found = solve(domains, allowed, effort=Effort(_EFFORT), order=likely)
    except EffortError:
        # The plain search found a record when the schema was loaded.
        found = solve(domains, allowed, effort=Effort(2**62))
    if found is None:
        raise ModelError("no record honors the schema's rules. Load the schema again: it refuses such rules.")
    return found


def settle(copula: Copula) -> Copula:
    """The copula moved so that, with the rules, its one-way tables are what they were without them.

    Fixed simulated rows show how far a repair moves each level. The level's probability is moved back by the same
    factor: in all components of a latent model, for the attributes in rules, which alone a repair moves; in the margins
    that a binary copula draws by, for all attributes.
    """
    allowed = copula.schema.allowed
    if not allowed:
        return copula
    wanted = _margins(copula)
    for round_ in range(_SETTLE_ROUNDS):
        present = _margins(copula) + _moved(copula, allowed, _SETTLE_SEED + round_)
        step = np.divide(wanted, present, out=np.ones_like(wanted), where=present > 0)
        copula = _times(copula, np.clip(step, 1 / _LARGEST_STEP, _LARGEST_STEP), allowed)
    return copula


def _margins(copula: BinaryCopula | LatentModel) -> NDArray[np.float64]:
    """Probabilities of levels before any repair, shape (d,)."""
    if isinstance(copula, LatentModel):
        return np.asarray(copula.probabilities.mean(axis=0, dtype=np.float64))
    return _normalized(copula.levels, copula.schema)


def _times(copula: Copula, step: NDArray[np.float64], allowed: Allowed) -> Copula:
    """The copula with levels so many times as likely, shape (d,)."""
    if isinstance(copula, BinaryCopula):
        return replace(copula, levels=_normalized(copula.levels * step, copula.schema))
    own = np.isin(block_of_level(copula.schema), constrained(allowed))
    moved = _normalized(copula.probabilities.astype(np.float64) * np.where(own, step, 1.0), copula.schema)
    return replace(copula, probabilities=np.where(own, moved, copula.probabilities).astype(np.float32))


def _normalized(weights: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """Weights of levels, shape (..., d), that sum to one within each attribute."""
    totals = np.add.reduceat(weights, schema.offsets[:-1], axis=-1)
    return np.asarray(weights / totals[..., block_of_level(schema)])


def _moved(copula: BinaryCopula | LatentModel, allowed: Allowed, seed: int) -> NDArray[np.float64]:
    """What a repair adds to the probability of each level, shape (d,)."""
    offsets, d = copula.schema.offsets[:-1, None], copula.schema.n_levels
    moved = np.zeros(d)
    generator = np.random.Generator(np.random.SFC64(seed))
    sampler = LatentSampler(copula) if isinstance(copula, LatentModel) else BinarySampler(copula)
    for block, rows in blocks(_SETTLE_ROWS):
        codes = _whole(sampler.draw(seed, block, rows))
        before = np.bincount((codes + offsets).ravel(), minlength=d)
        repair(codes, copula, allowed, generator)
        moved += (np.bincount((codes + offsets).ravel(), minlength=d) - before) / _SETTLE_ROWS
    return moved
