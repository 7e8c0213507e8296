"""Noise tested together: whitened residuals of everything that one or many releases drew are independent. The
derivation: docs/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy.special import bdtr, betainc, chdtr, chdtrc, ndtr, ndtri

from sklar.budget.certificate import Measured
from sklar.kernel.cells import Doubles, Ints
from sklar.kernel.queries import Block, Common
from sklar.kernel.theorems import Mechanism
from sklar.trust.audit import ALPHA
from sklar.trust.audit.kinds import Kind

# What is odd, in words, and how rarely noise as claimed is as odd.
Odd = tuple[str, float]
# A common value has noise that its threshold did not choose where it lies so many scales above.
_ABOVE = 10
# Of Laplace noise of scale b, (1 - tanh(1 / 2b)^2) / 2 is odd: more than this at the scales that are drawn here.
_HALF = 0.496
# Deviations beyond which noise is counted.
_FAR = (2.0, 2.3, 2.6, 3.0, 3.5)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """The noise of one block: normal scores, exact counts, whole noise, all of one length, and cells of each table."""

    name: str
    scores: Doubles
    noise: Ints
    exact: Ints
    sizes: Ints

    @classmethod
    def of(cls, number: int, block: Block, exact: Ints, mechanism: Mechanism) -> Drawn:
        """From a block and its exact answer; of common values those that are far above the threshold."""
        query, sizes = block.query, block.query.sizes
        kept = np.ones(exact.size, dtype=bool)
        if isinstance(query, Common):
            kept = exact > query.threshold + _ABOVE * block.scales[0]
            sizes = np.array([kept.sum()])
        noise = (block.values - exact)[kept].astype(np.int64)
        words = [type(query).__name__.lower(), str(getattr(query, "what", "") or getattr(query, "about", ""))]
        words[0] += f" of order {query.order}" if hasattr(query, "order") else ""
        name = f"{' '.join(filter(None, words))} (block {number})"
        scores = normal_scores(noise, np.repeat(block.scales, sizes), mechanism)
        return cls(name=name, scores=scores, noise=noise, exact=exact[kept], sizes=sizes)


def normal_scores(noise: Ints, scales: Doubles, mechanism: Mechanism) -> Doubles:
    """Noise as standard normal numbers (top of this file)."""
    generator = np.random.default_rng()
    if mechanism == "gaussian":
        return np.asarray((noise + generator.standard_normal(noise.size)) / np.sqrt(scales**2 + 1))
    # P(X > x) = p^(x + 1) / (1 + p) and P(X = x) = (1 - p) p^x / (1 + p) for x >= 0, with p = exp(-1 / scale).
    p, far = np.exp(-1 / scales), np.abs(noise)
    tail = p**far * (p + generator.random(noise.size) * (1 - p)) / (1 + p)
    return np.asarray(-np.where(noise < 0, -1, 1) * ndtri(tail))


def drawn_by(kind: Kind, releases: Sequence[Measured]) -> list[list[Drawn]]:
    """The noise of every block of every release of a kind."""
    return [
        [
            Drawn.of(number, block, exact, kind.budget.mechanism)
            for number, (block, exact) in enumerate(zip(measured.blocks, kind.exact(measured), strict=True))
        ]
        for measured in releases
    ]


def odd_together(drawn: Sequence[Sequence[Drawn]], alpha: float = ALPHA) -> list[Odd]:
    """What is odd about the noise of releases of one kind, likeliest flaw first; all tests share `alpha`."""
    chances: list[Odd] = []
    # Blocks of one number, over releases; a release that noise led elsewhere may have fewer.
    blocks = list(zip(*drawn, strict=False))
    for own in blocks:
        chances += _of_block(own)
        pairs = [(one.scores, two.scores) for one, two in pairwise(own)]
        chances += _goes_with(f"{own[0].name} in the next release", own[0].name, pairs)
    for one, two in combinations(blocks, 2):
        pairs = [(a.scores, b.scores) for a, b in zip(one, two, strict=True)]
        chances += _goes_with(one[0].name, two[0].name, pairs)
    every = [each for release in drawn for each in release]
    scores, noise = np.concatenate([each.scores for each in every]), np.concatenate([each.noise for each in every])
    few = int(min(np.sum(noise % 2), np.sum(noise % 2 == 0)))
    chances += [
        ("noise of two cells that goes together", _tied(blocks)),
        ("noise that comes back", comes_back(scores)),
        ("noise that is even or odd more often", 2 * float(bdtr(few, noise.size, _HALF))),
    ]
    for far in _FAR:
        short = float(bdtr(int(np.sum(np.abs(scores) > far)), scores.size, 2 * float(ndtr(-far))))
        chances.append((f"noise that is cut short of {far} deviations", short))
    odd = [(words, p) for words, p in chances if p < alpha / len(chances)]
    return sorted(odd, key=lambda each: each[1])


def _of_block(own: Sequence[Drawn]) -> list[Odd]:
    name, many = own[0].name, len(own)
    every, exact = (np.concatenate([getattr(each, part) for each in own]) for part in ("scores", "exact"))
    tables = np.concatenate([_sums(each.scores, each.sizes) for each in own])
    places = np.concatenate([_places(each) for each in own])
    halves = [(each.scores[: each.scores.size // 2], each.scores[::-1]) for each in own]
    chances = [
        *_size(f"noise of {name}", every),
        *_size(f"sums over tables of {name}", tables),
        *_size(f"sums over tables at the same place of {name}", places),
        *_goes_with(name, "its mirror image", halves),
        *_goes_with(name, "the next cell", [(each.scores[::2], each.scores[1::2]) for each in own]),
    ]
    for words, chosen in (("empty", exact == 0), ("filled", exact > 0), ("crowded", exact > 1_000)):
        chances += _size(f"noise of {words} cells of {name}", every[chosen])
        chances.append((f"noise of {words} cells that leans to one side in {name}", _lean(every[chosen])))
    chances.append((f"noise that tells whether counts are odd in {name}", _lean(every * np.where(exact % 2, 1, -1))))
    if len({each.scores.size for each in own}) == 1 and many > 1:
        cells = np.array([each.scores for each in own])
        squares, lean = (cells**2).sum(axis=0), np.abs(cells.sum(axis=0)) / math.sqrt(many)
        worst = {
            "a cell with too little noise": chdtr(many, squares.min(initial=np.inf)),
            "a cell with too much noise": chdtrc(many, squares.max(initial=0.0)),
            "noise of a cell that leans to one side": 2 * ndtr(-lean.max(initial=0.0)),
        }
        chances += [(f"{words} in {name}", squares.size * float(p)) for words, p in worst.items()]
    return chances


def _size(words: str, scores: Doubles) -> list[Odd]:
    """Whether the mean square of independent normals is 1."""
    total = float(scores @ scores)
    return [
        (f"{words}: too small", float(chdtr(scores.size, total)) if scores.size else 1.0),
        (f"{words}: too large", float(chdtrc(scores.size, total)) if scores.size else 1.0),
    ]


def _goes_with(one: str, two: str, pairs: Sequence[tuple[Doubles, Doubles]]) -> list[Odd]:
    """Sums and differences, cell by cell, of noise that should be independent."""
    cut = [(a[: min(a.size, b.size)], b[: min(a.size, b.size)]) for a, b in pairs]
    a, b = (np.concatenate([np.empty(0), *(pair[side] for pair in cut)]) for side in (0, 1))
    found = [*_size("", (a + b) / math.sqrt(2)), *_size("", (a - b) / math.sqrt(2))]
    words = ("cancels", "is shared with", "is shared with", "cancels")
    return [(f"noise of {one} {verb} that of {two}", p) for verb, (_, p) in zip(words, found, strict=True)]


def _sums(scores: Doubles, sizes: Ints) -> Doubles:
    """The normalized sum over each table of two cells or more."""
    if not scores.size:
        return scores
    return np.asarray((np.add.reduceat(scores, np.cumsum(sizes) - sizes) / np.sqrt(sizes))[sizes > 1])


def _places(drawn: Drawn) -> Doubles:
    """The normalized sums over cells at the same place in their tables, of two tables or more."""
    within = np.concatenate([np.arange(size) for size in drawn.sizes])
    times = np.bincount(within)
    return np.asarray((np.bincount(within, drawn.scores) / np.sqrt(np.maximum(times, 1)))[times > 1])


def _lean(scores: Doubles) -> float:
    return 2 * float(ndtr(-abs(scores.sum()) / math.sqrt(max(scores.size, 1))))


def _tied(blocks: Sequence[Sequence[Drawn]]) -> float:
    """Whether two cells that all releases have go together: correlations of normals, whose law is a beta's."""
    alike = [own for own in blocks if len({each.scores.size for each in own}) == 1]
    runs = len(blocks[0])
    if runs < 8 or not alike:
        return 1.0
    cells = np.concatenate([np.array([each.scores for each in own]) for own in alike], axis=1)
    ties = np.abs(np.corrcoef(cells.T)[np.triu_indices(cells.shape[1], 1)])
    return float(ties.size * betainc(runs / 2 - 1, 0.5, max(1 - float(ties.max(initial=0.0)) ** 2, 0.0)))


def comes_back(scores: Doubles) -> float:
    """Whether noise goes with itself at any distance, in a release or from one to the next (top of this file)."""
    n = scores.size
    sums = np.abs(np.fft.irfft(np.abs(np.fft.rfft(scores, 2 * n)) ** 2)[1:n])
    pairs = n - np.arange(1.0, n)
    t = (np.sqrt(pairs**2 + 16 * sums**2) - pairs) / (8 * np.maximum(sums, 1e-9))
    return float(2 * n * np.min(np.exp(-t * sums - pairs / 8 * np.log1p(-4 * t**2)), initial=1.0))
