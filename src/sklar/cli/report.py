"""`sklar report`: a report that is safe to publish."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import print_json, say
from sklar.cli.options import JSON, MODEL


@click.command(short_help="A report that is safe to publish.")
@MODEL
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="OUT.html", help="Where the report goes."
)
@JSON
def report(*, model_path: Path, out: Path, as_json: bool) -> None:
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
    if as_json:
        print_json({"out": out, "bytes": len(text.encode())})
        return
    say(f"The report is in {out} ({len(text.encode()) / 1e6:.2f} MB).")
    say("Safe to publish: made from the model file alone, which is differentially private. No privacy was spent.")
