"""`sklar audit`: try to break the guarantee."""

from __future__ import annotations

import sys

import click

from sklar.cli.console import print_figures, show_progress
from sklar.cli.options import JSON


@click.command(short_help="Try to break the guarantee, on invented data.")
@click.option("--quick", is_flag=True, help="About half a minute; the full audit has more trials and so sees more.")
@JSON
def audit(*, quick: bool, as_json: bool) -> None:
    """Try to break the privacy of this installation, on invented tables, from a file to a model.

    Every line says what was tried, what came out, and what the attack would have seen.

    \b
      sklar audit --quick
    """
    from sklar.trust.audit import audit as attack

    with show_progress() as progress:
        found = attack(quick=quick, progress=progress)
    print_figures(found, as_json=as_json)
    if not found.passed:
        sys.exit(1)
