"""Records of which some levels are given: the others drawn from a latent model given those.

Within a component attributes are independent, so what is given weighs the components, and everything else is drawn in
one of them. Rules are honored as `given` explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sklar.draw.blocks import Codes
from sklar.draw.given import chance_of_rules, keeping_chances
from sklar.draw.repair import pick, repair
from sklar.errors import ModelError
from sklar.public.rules import constrained, violating
from sklar.public.solve import Effort, solve

if TYPE_CHECKING:
    from sklar.fitting.protocols import Copula

_CHUNK = 1024
# Fresh draws of a record that rules have a say in, before one is searched for.
_ROUNDS = 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Domains:
    """The levels that one attribute may have, row by row: `allowed`, shape (kinds, levels), by each row's kind."""

    allowed: NDArray[np.bool_]
    kinds: NDArray[np.int64]


def fill(copula: Copula, domains: Sequence[Domains], seed: int) -> Codes:
    """Codes of the measured attributes, shape (m, rows), each within its domain, from the model given the domains."""
    components = copula.components()
    if components is None:
        raise ModelError(
            f"complete needs a model with components, and this one is '{copula.kind}'. Fit it with method 'auto'."
        )
    _check_rules(copula, domains)
    filling = _Filling(copula, components, domains)
    rows = domains[0].kinds.size
    codes = np.empty((len(domains), rows), dtype=np.int64)
    for number, start in enumerate(range(0, rows, _CHUNK)):
        generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, number, 7])))
        some = np.arange(start, min(start + _CHUNK, rows))
        codes[:, some] = filling.draw(some, generator)
    return codes


def _check_rules(copula: Copula, domains: Sequence[Domains]) -> None:
    """Refuse rows that no record which honors the rules completes."""
    allowed = copula.schema.allowed
    touched = constrained(allowed)
    if not touched:
        return
    kinds, first = np.unique(np.stack([domains[i].kinds for i in touched]), axis=1, return_index=True)
    for column, row in zip(kinds.T, first, strict=True):
        own = {i: domains[i].allowed[kind] for i, kind in zip(touched, column, strict=True)}
        if solve(own, allowed, effort=Effort(2**62)) is None:
            raise ModelError(f"row {row + 1:,} breaks a rule of the schema, whatever is filled in. Correct the row.")


class _Filling:
    def __init__(self, copula: Copula, components: NDArray[np.float32], domains: Sequence[Domains]) -> None:
        self._copula, self._probabilities, self._domains = copula, components, domains
        self._cells, self._allowed = copula.schema.cells, copula.schema.allowed
        self._touched = constrained(self._allowed)
        self._others = [i for i in range(len(domains)) if i not in self._touched]
        # The chance of each kind of domain in each component, shape (components, kinds).
        self._masses = [
            np.maximum(components[:, self._cells.levels(i)] @ own.allowed.T.astype(np.float32), np.float32(1e-30))
            for i, own in enumerate(domains)
        ]
        self._honored = chance_of_rules(components, self._cells.offsets, self._allowed) if self._touched else None

    def draw(self, rows: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """Codes of these rows."""
        logs = np.zeros((rows.size, len(self._probabilities)), dtype=np.float32)
        for mass, own in zip(self._masses, self._domains, strict=True):
            logs += np.log(mass)[:, own.kinds[rows]].T
        upto = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)).astype(np.float64), axis=1)
        codes = self._levels(rows, pick(upto, generator), generator)
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
        for _ in range(_ROUNDS):
            kept = self._kept(fresh, generator)
            codes[:, left[kept]] = fresh[:, kept]
            left = left[~kept]
            if left.size == 0:
                return codes
            fresh = self._levels(rows[left], pick(upto[left], generator), generator)
        self._search(codes, rows, left)
        return codes

    def _levels(self, rows: NDArray[np.int64], component: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """A level of every attribute within the domains of these rows, by the rows' components."""
        codes = np.empty((len(self._domains), rows.size), dtype=np.int64)
        for i, own in enumerate(self._domains):
            held = own.allowed[own.kinds[rows]]
            # Where a component gives a domain no chance, all of its levels are as likely.
            weights = np.maximum(self._probabilities[component, self._cells.levels(i)], np.float32(1e-30)) * held
            codes[i] = pick(np.cumsum(weights, axis=1, dtype=np.float64), generator)
        return codes

    def _kept(self, codes: Codes, generator: np.random.Generator) -> NDArray[np.bool_]:
        """Which of these records honor the rules and are kept."""
        honors = ~violating(codes, self._allowed)
        if self._honored is None:
            return honors
        chances = keeping_chances(self._probabilities, self._cells.offsets, codes, self._others, self._honored)
        return honors & (generator.random(codes.shape[1]) < chances)

    def _search(self, codes: Codes, rows: NDArray[np.int64], left: NDArray[np.int64]) -> None:
        """Levels by search where no draw honored the rules."""
        for place in left:
            own = {i: self._domains[i].allowed[self._domains[i].kinds[rows[place]]] for i in self._touched}
            for i, level in (solve(own, self._allowed, effort=Effort(2**62)) or {}).items():
                codes[i, place] = level
