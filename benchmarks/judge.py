"""How near synthetic rows come to the real ones: the same judge for our methods and their peers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.tables import Bench
from sklar.custodian.evaluate import answer, choose_triples, compare
from sklar.custodian.evaluate.conjunctions import MAX_TRIPLES, TripleQueries, answer_blocks
from sklar.public.schema import Schema

# All three-way tables are compared up to this many attributes; beyond it a random sample, which depends on m alone.
ALL_TRIPLES_UP_TO = 15
SAMPLED_TRIPLES = 400
TRIPLES_SEED = 2020
_MAX_CELLS = 1 << 22


def triples_of(m: int) -> list[tuple[int, int, int]]:
    """Which three-way tables are compared: all, or a random sample of `SAMPLED_TRIPLES`.

    >>> triples_of(4), len(triples_of(90))
    ([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)], 400)
    """
    everything = list(combinations(range(m), 3))
    if m <= ALL_TRIPLES_UP_TO or len(everything) <= SAMPLED_TRIPLES:
        return everything
    chosen = np.random.default_rng(TRIPLES_SEED).choice(len(everything), SAMPLED_TRIPLES, replace=False)
    return [everything[index] for index in np.sort(chosen)]


def three_way_errors(
    real: NDArray[np.int32], synthetic: NDArray[np.int32], sizes: Sequence[int], triples: Sequence[tuple[int, int, int]]
) -> tuple[float, float]:
    """The mean total variation distance of three-way tables of two sets of codes, shape (m, rows), and the largest
    error of a cell, in rows of the first. No code is negative.

    >>> codes = np.array([[0, 1], [0, 1], [0, 1]], dtype=np.int32)
    >>> three_way_errors(codes, codes[:, :1], [2, 2, 2], [(0, 1, 2)])
    (0.5, 1.0)
    """
    total, largest = 0.0, 0.0
    for a, b, c in triples:
        shape = (sizes[a], sizes[b], sizes[c])
        one, other = (np.ravel_multi_index((codes[a], codes[b], codes[c]), shape) for codes in (real, synthetic))
        cells = shape[0] * shape[1] * shape[2]
        if cells > _MAX_CELLS:
            # Only cells that occur, numbered anew.
            seen, both = np.unique(np.concatenate([one, other]), return_inverse=True)
            one, other, cells = both[: one.size], both[one.size :], seen.size
        shares = (np.bincount(each, minlength=cells) / each.size for each in (one, other))
        missed = np.abs(next(shares) - next(shares))
        total += 0.5 * float(missed.sum())
        largest = max(largest, real.shape[1] * float(missed.max()))
    return total / len(triples), largest


def _nothing_asked(schema: Schema) -> TripleQueries:
    in_all = choose_triples(schema).in_all
    return TripleQueries(schema=schema, listed=np.empty((0, 3), dtype=np.int64), in_all=in_all)


def judge(bench: Bench, drawn: NDArray[np.int32] | pl.DataFrame) -> dict[str, Any]:
    """Errors of synthetic codes, shape (m, rows), or of a table of dummies."""
    schema, asked, three, largest = bench.schema, _nothing_asked(bench.schema), None, None
    if isinstance(drawn, pl.DataFrame):
        every = choose_triples(schema)
        if every.in_all <= MAX_TRIPLES and schema.n_attributes <= ALL_TRIPLES_UP_TO:
            asked = every
        given = answer(drawn, schema, asked)
    else:
        given = answer_blocks([drawn], schema, asked, form="records")
        triples = triples_of(schema.n_attributes)
        three, largest = three_way_errors(bench.codes, drawn, schema.sizes.tolist(), triples)
    found = compare(answer_blocks([bench.codes], schema, asked, form="records"), given)
    if asked.size:
        three = found.result("three-way").tv
    best = {name: found.result(name).errors.best(100) for name in ("one-way", "two-way")}
    return {
        "one_way_average": round(best["one-way"].average, 3),
        "one_way_maximum": round(best["one-way"].maximum, 1),
        "two_way_average": round(best["two-way"].average, 4),
        "two_way_maximum": round(best["two-way"].maximum, 1),
        "three_way_maximum": None if largest is None else round(largest, 1),
        "tv1": round(found.result("one-way").tv or 0.0, 5),
        "tv2": round(found.result("two-way").tv or 0.0, 5),
        "tv3": None if three is None else round(three, 5),
        "valid": None if found.valid_share is None else round(found.valid_share, 5),
    }
