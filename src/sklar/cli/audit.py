"""`sklar audit`: try to break the guarantee."""

from __future__ import annotations

import click

from sklar.cli.console import JSON, print_figures, show_progress
from sklar.cli.options import flag


@click.command(short_help="Try to break the guarantee, on invented data.")
@flag("--quick", "About half a minute; the full audit has more trials and so sees more.")
@JSON
def audit(*, quick: bool) -> None:
    """Try to break the privacy of this installation, on invented tables, from a file to a model.

    Every line says what was tried, what came out, and what the attack would have seen.

    \b
      sklar audit --quick
    """
    from sklar.trust.audit import audit as attack

    with show_progress() as progress:
        result = attack(quick=quick, progress=progress)
    print_figures(result, passed=result.passed)
