"""All kernels compiled at once, into the cache: for images and machines that shall not wait later.

    python -m sklar.machine.warm [MODULE ...]

`sklar warm` does it for people; a release has another process do it for the modules that it will need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from sklar.machine.compiled import load

# Every module with kernels, those that a large release needs first at the front; and what they do.
KERNELS = {
    "sklar.rows.planes": "counting",
    "sklar.rows.cubes": "counting three-way tables",
    "sklar.kernel.noise": "noise",
    "sklar.fitting.steps": "fitting",
    "sklar.fitting.choose": "choosing",
    "sklar.fitting.denoise": "margins",
    "sklar.draw.refine": "refining",
    "sklar.draw.latent": "sampling",
    "sklar.rows.requote": "reading quoted CSV files",
    "sklar.fitting.tetrachoric": "fitting the binary copula",
    "sklar.draw.normals": "normals of the binary copula",
    "sklar.draw.winners": "sampling from the binary copula",
    "sklar.custodian.evaluate.counting": "evaluating",
}


def warm(names: Iterable[str] = KERNELS, *, begin: Callable[[str], None] = lambda _: None) -> None:
    """Compile the kernels of these modules, or load them where they are kept; `begin` is told each module's name."""
    for name in names:
        begin(name)
        # The kernel of the package imports nothing of it, and so has its own way.
        compiled = getattr(load(name), "_compiled", None)
        if compiled is not None:
            compiled()


if __name__ == "__main__":
    warm(sys.argv[1:] or KERNELS)
