"""`sklar report`: a report that is safe to publish."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, finish
from sklar.cli.options import MODEL, path


@click.command(short_help="A report that is safe to publish.")
@MODEL
@path("--out", "OUT.html", "Where the report goes.", required=True)
@JSON
def report(*, model_path: Path, out: Path) -> None:
    """Write a report that is safe to publish, from a MODEL file alone: one HTML page that needs no network.

    \b
      sklar report adult.sklar --out report.html
    """
    from sklar.answer.report import publishable
    from sklar.files.archive import load
    from sklar.files.write import check_target, write_text

    check_target(out, (".html",))
    text = publishable(load(model_path), file_name=model_path.name)
    write_text(out, text)
    finish(
        {"out": out, "bytes": len(text.encode())},
        f"The report is in {out} ({len(text.encode()) / 1e6:.2f} MB).",
        "Safe to publish: made from the model file alone, which is differentially private. No privacy was spent.",
    )
