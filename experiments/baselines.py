"""The outputs that the paper compares, and two more that any method should be compared with.

| name | what | DP |
|---|---|---|
| `cop` | the paper's copula on exact tables | no |
| `cop_identity`, `cop_ones` | the same with a correlation matrix of the identity, or of all ones | no |
| `no_cor` | answers n mu_i mu_j (and n mu_i mu_j mu_k) | no |
| `laplace` | independent noise on every query | yes |
| `dpc` | the mechanism | yes |
| `kendall` | DPCopula-Kendall (Li, Xiong and Jiang 2014), see `kendall.py` | yes |
| `independence` | the whole budget on one-way tables, attributes drawn independently | yes |

Each takes the exact answers of the real table and returns answers to the same queries. Sampling is seeded; noise
cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

from sklar.budget.method import Method
from sklar.custodian.evaluate.conjunctions import Answers, answer_blocks, dummies_of
from sklar.draw.repair import sample_codes
from sklar.files.model import Model
from sklar.fitting.margins import project_levels
from sklar.kernel.noise import discrete_laplace
from sklar.kernel.queries import Tables
from sklar.kernel.theorems import DEFAULT_DELTA, Budget
from sklar.kernel.vault import Vault
from sklar.paper.estimate import Probabilities, fit_binary, thresholds
from sklar.paper.gaussian import BinaryCopula, Repairs
from sklar.public.schema import Schema
from sklar.release import fit
from sklar.rows.encode import encode

# The paper's mechanism and its 0/1 output.
DPC = Method(name="binary", paper=True, dummies=True)
BLOCK_ROWS = 65_536

_NO_REPAIRS = Repairs(clipped_pairs=0, empty_attributes=0, negative_eigenvalues=0, moved=0.0, max_moved=0.0)
_NOISE_CHUNK = 1 << 22


def cop(true: Answers, *, seed: int) -> Answers:
    """The paper's copula fitted to exact tables: what is lost without any noise."""
    levels, pairs = true.one_way / true.n_rows, true.two_way / true.n_rows
    exact = Probabilities(cells=true.schema.cells, levels=levels, pairs=pairs)
    return _sampled(true, fit_binary(exact, true.schema, dummies=True, weighted=False), seed)


def cop_identity(true: Answers, *, seed: int) -> Answers:
    """The same margins with independent dummies."""
    return _sampled(true, _copula(true, np.eye(true.schema.n_levels)), seed)


def cop_ones(true: Answers, *, seed: int) -> Answers:
    """The same margins with all dummies driven by one normal."""
    factor = np.zeros((true.schema.n_levels, true.schema.n_levels))
    factor[:, 0] = 1.0
    return _sampled(true, _copula(true, factor), seed)


def _copula(true: Answers, factor: NDArray[np.float64]) -> BinaryCopula:
    levels = true.one_way / true.n_rows
    return BinaryCopula(
        schema=true.schema,
        dummies=True,
        levels=levels,
        cuts=thresholds(levels),
        factor=factor.astype(np.float32),
        repairs=_NO_REPAIRS,
    )


def _sampled(true: Answers, copula: BinaryCopula, seed: int) -> Answers:
    blocks = (block.view(np.bool_) for block in sample_codes(copula, true.n_rows, seed))
    return answer_blocks(blocks, true.schema, true.asked, form="dummies")


def no_cor(true: Answers) -> Answers:
    """Answers from exact margins alone: n mu_i mu_j. There are no rows behind them."""
    mean = true.one_way / true.n_rows
    triples = np.empty(true.asked.size, dtype=np.float32)
    for start, chances in _products(true, mean):
        triples[start : start + chances.size] = true.n_rows * chances
    return Answers(
        schema=true.schema,
        asked=true.asked,
        n_rows=true.n_rows,
        one_way=true.one_way,
        two_way=true.n_rows * true.schema.cells.flat(np.outer(mean, mean)),
        triples=triples,
    )


def _products(true: Answers, mean: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The products of three means in the layout of the triples, as (where, values)."""
    asked, cells = true.asked, true.schema.cells
    if asked.listed is not None:
        yield 0, mean[asked.listed].prod(axis=1)
        return
    tables = Tables(cells=cells, order=3)
    for start, chosen in zip(tables.offsets.tolist(), tables.members.tolist(), strict=False):
        first, second, third = (mean[cells.levels(attribute)] for attribute in chosen)
        yield start, np.multiply.outer(np.outer(first, second), third).ravel()


def laplace_scales(schema: Schema, *, epsilon: float, delta: float = DEFAULT_DELTA) -> tuple[float, float]:
    """The paper's noise scales 2/e': for Q1 and Q2 together (k = m + m (m - 1) / 2), and for Q3 alone (m choose 3).

    >>> from sklar.public.schema import Attribute
    >>> schema = Schema(name="", attributes=(Attribute(name="a", kind="boolean"),) * 14)
    >>> [round(2 / scale, 4) for scale in laplace_scales(schema, epsilon=1.0)]
    [0.0148, 0.0079]
    """
    budget = Budget(epsilon=epsilon, delta=delta, mechanism="laplace", composition="advanced")
    m = schema.n_attributes
    first, second = (float(budget.scales(np.ones(max(tables, 1)))[0]) for tables in (m + comb(m, 2), comb(m, 3)))
    return first, second


def laplace(true: Answers, *, epsilon: float, delta: float = DEFAULT_DELTA) -> Answers:
    """Independent Laplace noise on every query; answers below zero become zero, as the paper's figures imply.

    (With scale b = 2/e' and most two-way counts zero the average error is b/2, not b; the paper prints 78 for Adult
    where b = 135.)
    """
    scale, scale_triples = laplace_scales(true.schema, epsilon=epsilon, delta=delta)
    return Answers(
        schema=true.schema,
        asked=true.asked,
        n_rows=true.n_rows,
        one_way=_noisy(true.one_way, scale),
        two_way=_noisy(true.two_way, scale),
        triples=_noisy(true.triples, scale_triples),
    )


def _noisy(counts: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    out = np.empty_like(counts)
    for start in range(0, counts.size, _NOISE_CHUNK):
        part = counts[start : start + _NOISE_CHUNK]
        noise = discrete_laplace(np.array([scale]), np.array([part.size]))
        out[start : start + _NOISE_CHUNK] = np.maximum(part + noise, 0)
    return out


def dpc(real: object, true: Answers, *, epsilon: float, delta: float = DEFAULT_DELTA, seed: int) -> Answers:
    """The paper's mechanism, soundly read; its n rows of dummies."""
    budget = Budget(epsilon=epsilon, delta=delta, mechanism="laplace", composition="advanced")
    return drawn(fit(real, true.schema, budget, method=DPC), true, seed=seed)


def drawn(model: Model, true: Answers, *, seed: int) -> Answers:
    """Answers on as many synthetic rows of a fitted model as the real table has."""
    frames = model.sample_batches(true.n_rows, seed=seed)
    if model.dummies:
        return answer_blocks(map(dummies_of, frames), true.schema, true.asked, form="dummies")
    return answer_blocks((encode(frame, true.schema) for frame in frames), true.schema, true.asked, form="records")


def independence(true: Answers, *, epsilon: float, delta: float = DEFAULT_DELTA, seed: int) -> Answers:
    """The floor: all of the budget on one-way tables (Gaussian, tightly accounted), attributes drawn independently."""
    schema, n = true.schema, true.n_rows
    blocks = draw_independently(true.one_way, schema, Budget(epsilon=epsilon, delta=delta), n, seed)
    return answer_blocks(blocks, schema, true.asked, form="records")


def draw_independently(
    one_way: NDArray[np.int64], schema: Schema, budget: Budget, rows: int, seed: int
) -> Iterator[NDArray[np.int32]]:
    """Blocks of codes of independent attributes. Their one-way tables take the whole budget."""
    query, vault = Tables(cells=schema.cells, order=1), Vault(budget)
    scales = budget.scales(np.ones(schema.n_attributes))
    vault.hold(rows)
    vault.reserve(query.bound(scales, budget))
    levels = project_levels(vault.measure(query, one_way, scales).values / rows, schema.cells)
    chances = [levels[start:stop] for start, stop in pairwise(schema.offsets)]
    return draw_records(chances, rows, seed, correlation=None)


def draw_records(
    chances: list[NDArray[np.float64]], rows: int, seed: int, *, correlation: NDArray[np.float64] | None
) -> Iterator[NDArray[np.int32]]:
    """Blocks of codes, shape (m, rows), with these margins: a Gaussian copula over codes in the schema's order.

    Without a correlation matrix, shape (m, m), attributes are independent.
    """
    from scipy.special import ndtri

    cuts = [ndtri(np.minimum(np.cumsum(chance)[:-1], 1.0)) for chance in chances]
    factor = None if correlation is None else np.linalg.cholesky(correlation)
    for block, start in enumerate(range(0, rows, BLOCK_ROWS)):
        generator = np.random.default_rng(np.random.SeedSequence([seed, block]))
        normal = generator.standard_normal((len(chances), min(BLOCK_ROWS, rows - start)))
        drawn = normal if factor is None else factor @ normal
        yield np.stack(
            [np.searchsorted(cut, row, side="right").astype(np.int32) for cut, row in zip(cuts, drawn, strict=True)]
        )
