"""`sklar warm`: compile the inner loops now, so that nobody waits for them later."""

from __future__ import annotations

import click

from sklar.cli.console import say, show_progress


@click.command(short_help="Compile for this machine, now.")
def warm() -> None:
    """Compile all inner loops for this machine, into the cache of the user who runs this.

    Small tables need none of it, and large ones compile what they need, once. Run it where waiting later would cost
    more than waiting now: when an image is built, or before executors start. What is compiled is kept in
    ~/.cache/sklar, or in the folder that NUMBA_CACHE_DIR names, if that is closed to other users (0700).

    \b
      sklar warm
    """
    from sklar.machine.compiled import KERNELS, cache_folder, load

    with show_progress() as progress:
        for module, what in KERNELS.items():
            progress.stage(f"compile {what}")
            load(module)
    say(f"Compiled for this machine: {len(KERNELS)} parts, kept in {cache_folder() or 'no folder'}.")
