"""The fitted model's joint distribution of a few attributes: records with weights, one set of weights for each fit.

A model is the union of several fits. Few records are listed in full, with their exact probabilities; else, and where
rules forbid combinations, records are drawn. Drawn records are independent: those of `sample` are nearer to the model
than independent rows, and would understate sampling errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklar.answer.infer.effects import Coarse, Floats, Functional, Subset
from sklar.answer.predicate import QueryError
from sklar.draw.repair import repair
from sklar.fitting.protocols import Copula
from sklar.public.rules import constrained

# Records that are listed; beyond it, as many are drawn. Tables of one or two attributes are listed as long as they fit.
MOST_LISTED = 50_000
_MOST_CELLS = 500_000
_DRAWN = 100_000
_SEED = 20_261_116


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """Records of the attributes `where`, and what each fit of the model says of them.

    `codes` has shape (records, attributes); `weights` has shape (fits, records), each row sums to 1. `drawn` is the
    number of independent draws behind the weights, None where they are exact.
    """

    where: Subset
    sizes: tuple[int, ...]
    codes: NDArray[np.int64]
    weights: Floats
    drawn: int | None

    @property
    def union(self) -> Floats:
        """The weights of the whole model, shape (records,)."""
        return np.asarray(self.weights.mean(axis=0))

    def column(self, attribute: int) -> NDArray[np.int64]:
        """The codes of one attribute."""
        return self.codes[:, self.where.index(attribute)]

    def places(self, attributes: Subset) -> NDArray[np.int64]:
        """The cell of each record in the table of some attributes."""
        axes = [self.where.index(i) for i in attributes]
        shape = [self.sizes[axis] for axis in axes]
        return np.ravel_multi_index([self.codes[:, axis] for axis in axes], shape)

    def table(self, attributes: Subset, weights: Floats) -> Floats:
        """The shares of rows in the table of some attributes by these weights of records."""
        shape = [self.sizes[self.where.index(i)] for i in attributes]
        counts = np.bincount(self.places(attributes), weights=weights, minlength=math.prod(shape))
        return np.asarray(counts.reshape(shape))

    def coarse_places(self, attributes: Subset, coarse: Coarse) -> NDArray[np.int64]:
        """The cell of each record in the table of three attributes over coarse levels."""
        codes = [levels[self.column(i)] for i, levels in zip(attributes, coarse.levels, strict=True)]
        return np.ravel_multi_index(codes, coarse.values.shape)

    def over_records(self, functional: Functional, tops: Functional, coarse: Mapping[Subset, Coarse]) -> Floats:
        """The sum of a functional's functions at every record, shape (records, q); `tops` are of coarse levels."""
        terms = [function.reshape(len(function), -1).T[self.places(each)] for each, function in functional.items()]
        terms += [
            function.reshape(len(function), -1).T[self.coarse_places(each, coarse[each])]
            for each, function in tops.items()
        ]
        return np.asarray(sum(terms[1:], terms[0]))


def refer(copula: Copula, settings: Mapping[str, Any], where: Sequence[int]) -> Reference:
    """What the model says of these attributes."""
    components = _components(copula)
    # Version 1 to 3: the components of one fit follow those of another, as many of each.
    fits = int(settings.get("fits") or 1)
    fits = fits if len(components) % fits == 0 else 1
    schema, chosen = copula.schema, tuple(sorted(where))
    sizes = tuple(int(schema.sizes[i]) for i in chosen)
    most = _MOST_CELLS if len(chosen) <= 2 else MOST_LISTED
    if math.prod(sizes) > most or set(chosen) & set(constrained(schema.allowed)):
        return _drawn(copula, fits, chosen, sizes)
    return _listed(copula, components, fits, chosen, sizes)


def grid(sizes: Sequence[int]) -> NDArray[np.int64]:
    """The codes of all combinations of levels, shape (combinations, attributes), the last attribute's fastest."""
    return np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)


def _listed(
    copula: Copula, components: NDArray[np.float32], fits: int, where: Subset, sizes: tuple[int, ...]
) -> Reference:
    """All combinations of levels with their probabilities: within a component attributes are independent."""
    cells, half = copula.schema.cells, 1
    while half < len(where) and math.prod(sizes[:half]) < math.prod(sizes[half:]):
        half += 1
    # Two groups of attributes, whose joint table is one product of matrices.
    left, right = (_product(components, [cells.levels(i) for i in group]) for group in (where[:half], where[half:]))
    each = len(components) // fits
    tables = [left[part].T @ right[part] for part in (slice(f * each, (f + 1) * each) for f in range(fits))]
    weights = np.stack([table.ravel() / table.sum() for table in tables])
    return Reference(where=where, sizes=sizes, codes=grid(sizes), weights=weights, drawn=None)


def _product(components: NDArray[np.float32], levels: Sequence[slice]) -> Floats:
    joint = np.ones((len(components), 1))
    for own in levels:
        joint = (joint[:, :, None] * components[:, own].astype(np.float64)[:, None, :]).reshape(len(components), -1)
    return joint


def _drawn(copula: Copula, fits: int, where: Subset, sizes: tuple[int, ...]) -> Reference:
    """Independent draws, the same number from each fit, mended where they break a rule."""
    if set(where) & set(constrained(copula.schema.allowed)):
        # A copula is hashed by what it is, not by what it says.
        codes = _mended(copula, fits)[list(where)]  # type: ignore[arg-type]
    else:
        codes = _draw(copula, fits, where, np.random.Generator(np.random.SFC64(_SEED)))
    weights = np.zeros((fits, _DRAWN))
    weights[_fit_of(fits), np.arange(_DRAWN)] = 1.0
    weights /= weights.sum(axis=1, keepdims=True)
    return Reference(where=where, sizes=sizes, codes=codes.T, weights=weights, drawn=_DRAWN)


# Repairs look at all attributes and take a second: the next question to the same model finds its records here.
@lru_cache(maxsize=1)
def _mended(copula: Copula, fits: int) -> NDArray[np.int64]:
    generator = np.random.Generator(np.random.SFC64(_SEED))
    codes = _draw(copula, fits, range(copula.schema.n_attributes), generator)
    repair(codes, copula, copula.schema.allowed, generator)
    codes.setflags(write=False)
    return codes


def _fit_of(fits: int) -> NDArray[np.int64]:
    return np.arange(_DRAWN) % fits


def _draw(copula: Copula, fits: int, where: Sequence[int], generator: np.random.Generator) -> NDArray[np.int64]:
    """Codes of some attributes, shape (attributes, draws)."""
    cells, components = copula.schema.cells, _components(copula)
    each = len(components) // fits
    component = _fit_of(fits) * each + generator.integers(each, size=_DRAWN)
    codes = np.zeros((len(where), _DRAWN), dtype=np.int64)
    for row, i in zip(codes, where, strict=True):
        upto = np.cumsum(components[:, cells.levels(i)], axis=1, dtype=np.float64)
        at = generator.random(_DRAWN) * upto[component, -1]
        for level in range(upto.shape[1] - 1):
            row += upto[component, level] <= at
    return codes


def _components(copula: Copula) -> NDArray[np.float32]:
    components = copula.components()
    if components is None:
        raise QueryError(
            "inference needs a model of whole attributes, and this one is the paper's copula over dummies. Fit another "
            "to the same noisy tables, at no cost: sklar.fit_tables(model.measured).infer(...)."
        )
    return components
