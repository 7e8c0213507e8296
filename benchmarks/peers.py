"""Peers on integer codes, run as a script inside their own environment (`requirements/peers.txt`): no sklar here.

    python -P benchmarks/peers.py METHOD IN.npz OUT.npz --epsilon 1 --delta 9.3e-10

It reads `codes`, shape (rows, m), and `sizes`, shape (m,), and writes synthetic codes of the same shape and the seconds
that fitting and sampling took.

dpmm accounts for neighbors that differ by one row added or removed; here one row is replaced. With rho the zCDP budget
of (epsilon, delta):

- A Gaussian measurement of a table has L2 sensitivity sqrt(2) instead of 1 and costs 2 / (2 sigma^2): given rho / 2,
  the code's own accounting picks sigma sqrt(2) times as large, and uses that sigma wherever it reasons about noise.
- The exponential mechanism of MST and AIM scores a pair by an L1 distance, whose sensitivity is 2 instead of 1. From
  rho / 2 the code derives a selection epsilon that is 1 / sqrt(2) of what rho gives; it is multiplied by sqrt(2) again
  and the sensitivity by 2, so that selection costs exactly its share of rho.
- PrivBayes selects with pure epsilon / 2 by a sensitivity of mutual information that is already the one for replaced
  rows. It is left alone. (It is stated in natural logarithms and used on normalised information in bits, so its
  guarantee is weaker than it says: that favours PrivBayes.)
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import numpy as np


def replace_one(mechanism: Any) -> None:
    """Make a dpmm mechanism private for replaced rows, within the (epsilon, delta) that it was made with."""
    kind = type(mechanism).__name__
    mechanism.rho /= 2
    if kind in ("MST", "PrivBayes"):
        mechanism.sigma *= math.sqrt(2)
    if kind in ("MST", "AIM"):
        choose = mechanism.exponential_mechanism

        def chosen(qualities: Any, epsilon: float, sensitivity: float = 1.0, *rest: Any) -> Any:
            return choose(qualities, epsilon * math.sqrt(2), 2 * sensitivity, *rest)

        mechanism.exponential_mechanism = chosen


def make(method: str, sizes: dict[str, int], epsilon: float, delta: float) -> Any:
    """A model with the package's own settings, on one core."""
    from dpmm.models.aim import AIMGM  # type: ignore[import-not-found]
    from dpmm.models.mst import MSTGM  # type: ignore[import-not-found]
    from dpmm.models.priv_bayes import PrivBayesGM  # type: ignore[import-not-found]

    kind = {"aim": AIMGM, "mst": MSTGM, "privbayes": PrivBayesGM}[method]
    model = kind(epsilon=epsilon, delta=delta, domain=sizes, n_jobs=1)
    replace_one(model.generator)
    return model


def release(method: str, source: str, target: str, epsilon: float, delta: float) -> None:
    """Fit a peer to codes, draw as many rows, and save them."""
    import pandas as pd

    with np.load(source) as given:
        codes, sizes = given["codes"], given["sizes"]
    names = [f"x{index:04d}" for index in range(sizes.size)]
    frame = pd.DataFrame(codes.astype(np.int64), columns=names)
    model = make(method, dict(zip(names, map(int, sizes), strict=True)), epsilon, delta)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(frame)
    drawn = model.generate(n_records=len(frame))
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    cliques = len(model.generator.cliques or ())
    # Under another name first: a file that is there is whole.
    part = target + ".part.npz"
    np.savez_compressed(part, codes=drawn[names].to_numpy(dtype=np.int32), seconds=np.array(seconds), cliques=cliques)
    os.replace(part, target)  # noqa: PTH105


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=("aim", "mst", "privbayes"))
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, required=True)
    release(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
