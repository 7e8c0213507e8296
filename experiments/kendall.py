"""DPCopula-Kendall (Li, Xiong and Jiang, EDBT 2014), the closest earlier method, as a baseline.

A Gaussian copula over whole attributes, whose codes are taken as numbers in the schema's order. Margins are Laplace
histograms; correlations are sin(pi/2 tau) of noisy Kendall's tau; a matrix that is not positive definite has its
eigenvalues clipped and its diagonal scaled back to one. Records are valid.

The budget is split by advanced composition: each of the m histograms and m (m - 1) / 2 taus gets the same e', as each
table does in the paper's own mechanism. (Li et al. give margins eight times as much as all taus together; on 14
attributes that drowns every tau.)

Sensitivity, replace-one: a row is in n - 1 of the n (n - 1) / 2 pairs of rows, and each changes its sign by at most 2,
so tau moves by at most 4/n. (Li et al. have 4/(n + 1), for a table that grows from n to n + 1 rows.) A tau is rounded
to a multiple of 2^-20, so that the noise can be exact, which adds at most one such unit.
"""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from experiments.baselines import draw_records
from sklar.custodian.evaluate.conjunctions import Answers, answer_blocks
from sklar.kernel.noise import discrete_laplace
from sklar.kernel.theorems import DEFAULT_DELTA, Budget, round_up_scale
from sklar.public.schema import Schema

_UNIT = 1 << 20
_FLOOR = 1e-6


def kendall(true: Answers, *, epsilon: float, delta: float = DEFAULT_DELTA, seed: int) -> Answers:
    """Answers on n records drawn from the DPCopula-Kendall model of the real table."""
    schema, n, m = true.schema, true.n_rows, true.schema.n_attributes
    budget = Budget(epsilon=epsilon, delta=delta, mechanism="laplace", composition="advanced")
    scale = float(budget.scales(np.ones(m + math.comb(m, 2)))[0])
    counts = true.one_way + discrete_laplace(np.array([scale]), np.array([schema.n_levels]))
    chances = [_shares(counts[start:stop]) for start, stop in pairwise(schema.offsets)]

    taus = kendall_taus(schema.cells.square(true.two_way), schema, n)
    units = np.rint(taus * _UNIT).astype(np.int64)
    noise = discrete_laplace(np.array([tau_scale(n, scale)]), np.array([units.size]))
    correlation = np.eye(m)
    correlation[np.triu_indices(m, 1)] = np.sin(math.pi / 2 * np.clip((units + noise) / _UNIT, -1, 1))
    repaired = clip_and_rescale(correlation + np.triu(correlation, 1).T)
    blocks = draw_records(chances, n, seed, correlation=repaired)
    return answer_blocks(blocks, schema, true.asked, form="records")


def tau_scale(n_rows: int, table_scale: float) -> float:
    """The scale of noise on a tau, in units of 2^-20, that costs what a table at `table_scale` does (e' = 2/scale)."""
    sensitivity = math.ceil(4 * _UNIT / n_rows) + 1
    return float(round_up_scale(sensitivity * table_scale / 2))


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    kept = np.maximum(counts, 0)
    return kept / kept.sum() if kept.any() else np.full(kept.size, 1 / kept.size)


def kendall_taus(pairs: NDArray[np.int64], schema: Schema, n_rows: int) -> NDArray[np.float64]:
    """Kendall's tau-a of the codes of every pair of attributes i < j, shape (m (m - 1) / 2,).

    From the two-way tables: once they are counted, in O(m^2 n) for all, a pair takes |A| |B| steps more.
    """
    blocks = list(pairwise(schema.offsets))
    return np.array([kendall_tau(pairs[slice(*a), slice(*b)], n_rows) for a, b in combinations(blocks, 2)])


def kendall_tau(table: NDArray[np.int64], n_rows: int) -> float:
    """Kendall's tau-a from a contingency table: (concordant - discordant) / (n (n - 1) / 2); ties count as neither.

    >>> kendall_tau(np.array([[1, 0], [0, 2]]), 3)
    0.6666666666666666
    """
    above = np.zeros((table.shape[0] + 1, table.shape[1] + 1), dtype=np.int64)
    above[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
    lower_left = above[:-1, :-1]
    lower_right = above[:-1, -1:] - above[:-1, 1:]
    score = int(np.sum(table * (lower_left - lower_right)))
    return score / (n_rows * (n_rows - 1) / 2) if n_rows > 1 else 0.0


def clip_and_rescale(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Li et al.'s repair: eigenvalues below a floor lifted to it, then the diagonal scaled back to one."""
    values, vectors = np.linalg.eigh(matrix)
    lifted = (vectors * np.maximum(values, _FLOOR)) @ vectors.T
    spread = np.sqrt(np.diag(lifted))
    return np.asarray(lifted / np.outer(spread, spread))
