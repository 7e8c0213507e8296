"""Whether two attributes are independent: a Wald test on the noisy interaction.

With p and q the margins, D = C (T / n - p q') C is the interaction, centered both ways. Where the attributes are
independent in the population, its covariance is the sum of

- sampling: C (diag p - p p') C x C (diag q - q q') C / n;
- the table's noise: sigma^2 on the centered cells;
- the margins' noise, of variance v on their contrasts: v_i (Cq)(Cq)' and v_j (Cp)(Cp)', and v_i v_j.

D' Cov^-1 D is then chi-square with (K_i - 1)(K_j - 1) degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sklar.answer.infer.effects import Effects, Floats, Subset
from sklar.answer.predicate import QueryError

# The covariance of the interaction is one square matrix.
_MOST = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaldTest:
    """A test: its statistic, degrees of freedom and p-value."""

    statistic: float
    degrees: int
    p_value: float


def independence(effects: Effects, margins: tuple[Floats, Floats], *, population: bool) -> WaldTest:
    """The test of two attributes, whose margins by the model are `margins`: those that the covariance is computed with.

    Without `population` the hypothesis is about the table itself, and sampling has no part in it.
    """
    from scipy.special import chdtrc

    pair: Subset = effects.where
    first, second = ((i,) for i in pair)
    bases = [contrast_basis(size) for size in effects.sizes]
    degrees = bases[0].shape[1] * bases[1].shape[1]
    if degrees > _MOST:
        raise QueryError(
            f"a test of independence compares at most {_MOST:,} contrasts, got {degrees:,}. Use attributes of fewer "
            "levels."
        )
    if pair not in effects.by_set:
        raise QueryError("the model holds no two-way tables, so independence cannot be tested.")
    # Measured margins, in contrasts: the mean of all levels is known.
    p, q = (1 / size + effects.by_set[each].values for size, each in zip(effects.sizes, (first, second), strict=True))
    interaction = effects.by_set[pair].values - np.outer(p - p.mean(), q - q.mean())
    d = (bases[0].T @ interaction @ bases[1]).ravel()
    p, q = margins
    cp, cq = bases[0].T @ p, bases[1].T @ q
    vi, vj, noise = (effects.by_set[each].variance for each in (first, second, pair))
    one, two = (np.eye(basis.shape[1]) for basis in bases)
    covariance = (noise + vi * vj) * np.eye(degrees)
    covariance += vi * np.kron(one, np.outer(cq, cq)) + vj * np.kron(np.outer(cp, cp), two)
    if effects.n_rows_variance:
        relative = effects.n_rows_variance / effects.n_rows**2
        flat = np.outer(cp, cq).ravel()
        covariance += relative * np.outer(flat, flat)
    if population:
        spread = [
            basis.T @ (np.diag(each) - np.outer(each, each)) @ basis for basis, each in zip(bases, (p, q), strict=True)
        ]
        covariance += np.kron(spread[0], spread[1]) / effects.n_rows
    statistic = float(d @ np.linalg.solve(covariance, d))
    return WaldTest(statistic=statistic, degrees=degrees, p_value=float(chdtrc(degrees, statistic)))


def contrast_basis(levels: int) -> Floats:
    """An orthonormal basis of the contrasts of some levels, shape (levels, levels - 1).

    >>> (contrast_basis(2) ** 2).round(3).tolist()
    [[0.5], [0.5]]
    """
    return np.linalg.qr(np.eye(levels)[:, : levels - 1] - 1 / levels)[0]
