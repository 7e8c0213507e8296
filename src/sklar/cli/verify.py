"""`sklar verify`: recompute what a model file cost."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sklar.cli.console import print_figures
from sklar.cli.options import JSON, MODEL


@click.command(short_help="Recompute what a model file cost.")
@MODEL
@JSON
def verify(*, model_path: Path, as_json: bool) -> None:
    """Recompute what a MODEL file cost from its parts, and say what an outsider may conclude.

    Exit code 1 when anything in the file contradicts its privacy certificate.

    \b
      sklar verify adult.sklar
    """
    from sklar.trust.verify import verify as recompute

    found = recompute(model_path)
    print_figures(found, as_json=as_json)
    if not found.passed:
        sys.exit(1)
