"""What the paper illustrates: artificial order, the reversed prefix, the sensitivity of Pearson; and what its Algorithm
2, read literally, would really cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from experiments import data, paper, record
from experiments.figures import grid
from sklar.kernel.theorems import advanced_epsilon
from sklar.paper.estimate import far_orthant, thresholds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# English-Married, Chinese-Divorced, French-Widowed.
COUNTS = (100, 200, 100)
MAPS = {"1, 2, 3": (1, 2, 3), "3, 1, 2": (3, 1, 2)}
DELTA = 2.0**-30
EPSILON_EACH = 0.014782  # Adult, epsilon = 1


def pearson_of_maps(second: Sequence[int]) -> float:
    """Pearson correlation of the 400 rows when the countries are 1, 2, 3 and the statuses are `second`.

    >>> round(pearson_of_maps((3, 1, 2)), 3)
    -0.426
    """
    x, y = np.repeat([1, 2, 3], COUNTS), np.repeat(second, COUNTS)
    return float(np.corrcoef(x, y)[0, 1])


def through_numbers(second: Sequence[int], *, margin_follows: bool = True) -> NDArray[np.float64]:
    """Expected counts of the three pairs when 400 rows are drawn from a Gaussian copula with the maps' Pearson.

    P(x, y) is the chance that a bivariate normal falls into the rectangle between the cut points of both numbers. The
    paper's own draw agrees with `margin_follows=False`: the statuses get new numbers, and the numbers keep the old
    shares (1/4, 1/2, 1/4).
    """
    n, r = sum(COUNTS), np.clip(pearson_of_maps(second), -1, 1)
    x, y, shares = np.array([1, 2, 3]), np.array(second), np.array(COUNTS) / sum(COUNTS)
    cuts_x, cuts_y = _cuts(shares), _cuts(shares[np.argsort(y)] if margin_follows else shares)

    def chance(a: int, b: int) -> float:
        corners = [(-1) ** (i + j) * orthant(cuts_x[a - i], cuts_y[b - j], r) for i in (0, 1) for j in (0, 1)]
        return float(np.sum(corners))

    return np.array([n * chance(a, b) for a, b in zip(x, y, strict=True)])


def orthant(h: ArrayLike, k: ArrayLike, r: ArrayLike) -> NDArray[np.float64]:
    """P(Y1 > h, Y2 > k) for standard normals with correlation r (Eq. 6), to 1e-15; NaN where |r| > 1."""
    # P(Y > 38.5) underflows: farther cut points are infinite.
    h, k = (np.clip(np.asarray(each, np.float64), -38.5, 38.5) for each in (h, k))
    r = np.asarray(r, np.float64)
    u = np.sqrt(np.where(np.abs(r) <= 1.0, (1.0 - r) * (1.0 + r), np.nan))
    area = far_orthant(np.abs(h), np.abs(k), np.where((h < 0.0) == (k < 0.0), r, -r), u)
    # P(Y1 > h, Y2 > k) = P(Y2 > k) - P(-Y1 > -h, Y2 > k)
    area = np.where(h < 0.0, ndtr(-np.abs(k)) - area, area)
    return np.clip(np.where(k < 0.0, ndtr(-h) - area, area), 0.0, np.minimum(ndtr(-h), ndtr(-k)))


def _cuts(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut points of ordered levels, from -inf to inf."""
    above = np.clip(1 - np.concatenate([[0], np.cumsum(shares)]), 0, 1)
    return thresholds(above)


def reversed_prefix(n: int, share: float) -> tuple[float, float, float]:
    """How far r falls when the first `share` n of n ranks are reversed: computed, by formula, as printed.

    With k = share n the fall is 2 k (k^2 - 1) / (n (n^2 - 1)) = 2 share^3 (1 + odds/(n + 1)) (1 - odds/(n - 1)), where
    odds = 1/share - 1. The paper's last line has a minus in both.

    >>> [round(value, 6) for value in reversed_prefix(100, 0.25)]
    [0.031203, 0.031203, 0.029403]
    """
    ranks = np.arange(1, n + 1)
    k = round(share * n)
    turned = np.concatenate([ranks[:k][::-1], ranks[k:]])
    computed = 1 - float(np.corrcoef(ranks, turned)[0, 1])
    odds = 1 / share - 1
    leading, second = 2 * share**3, 1 - odds / (n - 1)
    return computed, leading * (1 + odds / (n + 1)) * second, leading * (1 - odds / (n + 1)) * second


def pearson_jump(n: int) -> tuple[float, float]:
    """Pearson of X = Y = (1, 0, ..., 0), and after X_2 is set to 1.

    Before, r is 1 (the paper has sqrt(1 - 1/n)); after, it is sqrt((n - 2) / (2 (n - 1))), just below 1/sqrt(2).
    """
    x = np.zeros(n)
    x[0] = 1
    y = x.copy()
    before = float(np.corrcoef(x, y)[0, 1])
    x[1] = 1
    return before, float(np.corrcoef(x, y)[0, 1])


def claimed_cost(sizes: Sequence[int]) -> int:
    """What the paper claims for its mechanism, in units of e': one per attribute and one per pair of attributes."""
    m = len(sizes)
    return m + m * (m - 1) // 2


def literal_cost(sizes: Sequence[int]) -> int:
    """What Algorithms 1 and 2 cost when every dummy's and every dummy pair's noisy cells come out, in units of e'.

    Replacing one row moves two dummies of an attribute, and 2 (|A| + |B| - 2) dummy pairs of two attributes, each by
    one in two of its cells, under noise of scale 2/e'.

    >>> literal_cost([2, 3])
    10
    """
    m, d = len(sizes), sum(sizes)
    pairs = (m - 1) * d - m * (m - 1)
    return 2 * m + 2 * pairs


def ratio_cost(sizes: Sequence[int]) -> int:
    """What they cost when only the ratios come out: a row moves two dummies per attribute, two dummy pairs per pair."""
    return 2 * claimed_cost(sizes)


def collect(sizes: Sequence[int]) -> dict[str, Any]:
    """All illustrations, for JSON."""
    costs = {"claimed": claimed_cost(sizes), "ratios only": ratio_cost(sizes), "noisy cells": literal_cost(sizes)}
    return {
        "artificial_order": {
            name: {
                "pearson": round(pearson_of_maps(second), 6),
                "expected_counts": through_numbers(second).round(1).tolist(),
                "expected_counts_old_margin": through_numbers(second, margin_follows=False).round(1).tolist(),
                "paper_counts": list(paper.THROUGH_NUMBERS[name]),
            }
            for name, second in MAPS.items()
        },
        "reversed_prefix": [
            {"n": n, "share": share, "computed": computed, "formula": formula, "printed": printed}
            for n in (100, 1000)
            for share in (0.1, 0.25, 0.5, 1.0)
            for computed, formula, printed in [reversed_prefix(n, share)]
        ],
        "pearson_sensitivity": [
            {"n": n, "before": before, "after": after, "jump": before - after}
            for n in (10, 100, 10_000)
            for before, after in [pearson_jump(n)]
        ],
        "literal_cost_adult": {
            name: {
                "in_units_of_epsilon_each": cost,
                "basic_epsilon": round(cost * EPSILON_EACH, 3),
                "advanced_epsilon": round(advanced_epsilon([EPSILON_EACH], [cost], DELTA), 3),
            }
            for name, cost in costs.items()
        },
    }


def markdown(found: dict[str, Any]) -> str:
    """The illustrations as four short tables."""
    counts = ("expected_counts", "expected_counts_old_margin", "paper_counts")
    order = record.table(
        ["status mapped to", "Pearson", "expected counts", "with the old margin", "the paper's draw"],
        [
            [name, f"{each['pearson']:.3f}", *(" / ".join(f"{count:.0f}" for count in each[key]) for key in counts)]
            for name, each in found["artificial_order"].items()
        ],
    )
    prefix = record.table(
        ["n, share reversed", "r falls by", "formula, sign mended", "formula as printed"],
        [
            [f"{row['n']:,}, {row['share']:g}", *(f"{row[key]:.6f}" for key in ("computed", "formula", "printed"))]
            for row in found["reversed_prefix"]
        ],
    )
    jump = record.table(
        ["n", "r before", "r after one row", "jump"],
        [
            [f"{row['n']:,}", *(f"{row[key]:.4f}" for key in ("before", "after", "jump"))]
            for row in found["pearson_sensitivity"]
        ],
    )
    cost = record.table(
        ["reading, Adult", "cost in e'", "epsilon, added up", "epsilon, advanced composition"],
        [
            [
                name,
                f"{each['in_units_of_epsilon_each']:,}",
                f"{each['basic_epsilon']:.2f}",
                f"{each['advanced_epsilon']:.2f}",
            ]
            for name, each in found["literal_cost_adult"].items()
        ],
    )
    return (
        "# Illustrations\n\nFour warnings of the paper, in numbers. A copula through numbers that stand for categories "
        "depends on their order. Algorithm 2, read literally, costs many times what it claims.\n\n"
        "## Artificial order\n\n400 rows: 100 (English, Married), 200 (Chinese, Divorced), 100 "
        "(French, Widowed); countries are 1, 2, 3. The paper prints a Pearson of "
        f"{paper.PRINTED_PEARSON} for the second map; its draw agrees with the margin of the first map.\n\n"
        f"{order}\n## Reversed prefix\n\n{prefix}\n## Sensitivity of Pearson\n\n{jump}\n"
        f"## The literal Algorithm 2\n\nOn Adult with e' = {EPSILON_EACH}, at delta = 2^-30.\n\n{cost}"
    )


def figure(found: dict[str, Any]) -> Figure:
    """Counts by map, and cost by reading, side by side."""
    drawn, (left, right) = grid(2, 2, title="Two warnings", size=(4.8, 3.4))
    bars: list[tuple[str, Sequence[float], str, str]] = [("real rows", COUNTS, "#111827", "")]
    for (name, each), colour, hatch in zip(
        found["artificial_order"].items(), ("#9ca3af", "#ffffff"), ("", "///"), strict=True
    ):
        bars.append((f"copula, status as {name}", each["expected_counts"], colour, hatch))
    for index, (label, counts, colour, hatch) in enumerate(bars):
        at = np.arange(3) + 0.27 * (index - 1)
        left.bar(at, counts, 0.25, label=label, color=colour, edgecolor="#111827", hatch=hatch)
    left.set_xticks(np.arange(3), ["English,\nMarried", "Chinese,\nDivorced", "French,\nWidowed"])
    left.set_ylabel("rows of 400")
    left.set_ylim(0, 310)
    left.legend(fontsize=8, frameon=False, loc="upper right")
    left.set_title("Numbers for categories: the order decides", fontsize=10, loc="left")
    costs = {name: each["advanced_epsilon"] for name, each in found["literal_cost_adult"].items()}
    right.bar(range(len(costs)), list(costs.values()), 0.5, color="#9ca3af", edgecolor="#111827")
    for index, cost in enumerate(costs.values()):
        right.text(index, cost, f"{cost:.2f}", ha="center", va="bottom", fontsize=9)
    right.set_xticks(range(len(costs)), list(costs))
    right.set_ylabel("epsilon, advanced composition")
    right.margins(y=0.12)
    right.set_title("Algorithm 2 read literally: its cost on Adult", fontsize=10, loc="left")
    return drawn


@click.command()
@record.options
def main(data_folder: Path | None, out: Path) -> None:
    """Artificial order, the reversed prefix, the sensitivity of Pearson, the cost of the literal Algorithm 2."""
    found = collect(data.from_folder("adult", data_folder).schema.sizes.tolist())
    document = {"header": record.header("illustrations"), "results": found}
    figures = {"illustrations": figure(found)}
    record.write(out, "illustrations", document=document, markdown=markdown(found), figures=figures)


if __name__ == "__main__":
    main()
