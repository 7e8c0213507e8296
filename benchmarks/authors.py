"""The package of the paper's authors, timed as a script inside its own environment: no sklar here.

    python benchmarks/authors.py OUT.json

Writes the seconds of one release of a small 0/1 table by `dpcgeneration`, and of its search for one Gaussian
correlation, which is where its time goes. The package always starts ten processes; CPU seconds are of all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import tempfile
import time

import numpy as np

ROWS = 1_000
ATTRIBUTES = 4
PAIRS = 3


def _cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def release() -> dict[str, float]:
    """One release of a table of correlated 0/1 columns."""
    import pandas as pd
    from dpcgeneration import DPCopula  # type: ignore[import-not-found]

    generator = np.random.default_rng(1)
    common = generator.random(ROWS)
    columns = {f"x{i}": generator.random(ROWS) + common > 0.9 + 0.1 * i for i in range(ATTRIBUTES)}
    rows = pd.DataFrame(columns).astype(int)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), _cpu()
        # The default epssize=0 is divided by.
        DPCopula().rundpc_onehot(
            data=rows, withNoise=True, epslimit=1, path_fnl=folder + "/", convert_bin=False, epssize=None
        )
        return {"seconds": time.perf_counter() - wall, "cpu_seconds": _cpu() - cpu}


def search() -> dict[str, float]:
    """The search for the Gaussian correlation of two 0/1 columns, in this process; the mean over a few targets."""
    from dpcgeneration import Copulafuncs

    cumulated, values = {0: np.array([0.6, 1.0]), 1: np.array([0.7, 1.0])}, {0: [0, 1], 1: [0, 1]}
    wall, cpu = time.perf_counter(), time.process_time()
    for target in np.linspace(0.08, 0.2, PAIRS):
        Copulafuncs().bisectionalSearch(cumulated, target, 0, 1, values)
    taken = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    return {key: value / PAIRS for key, value in taken.items()}


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    target = parser.parse_args().target
    # Bars and prints of the package would only be in the way.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = {"rows": ROWS, "pairs": ATTRIBUTES * (ATTRIBUTES - 1) // 2, "release": release(), "pair": search()}
    part = target + ".part"
    with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(found, file)
    os.replace(part, target)  # noqa: PTH105


if __name__ == "__main__":
    main()
