"""`sklar publish`: a release as a folder that can be put online as it is."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, finish, show_progress
from sklar.cli.options import MODEL, ROWS, THREADS, flag, path


@click.command(short_help="A folder that can be put online as it is.")
@MODEL
@path("--out", "FOLDER", "The folder to write.", required=True)
@ROWS
@click.option("--seed", type=int, default=0, show_default=True, help="Which rows are drawn; stated in the folder.")
@click.option("--publisher", metavar="NAME", help="Who publishes it.")
@click.option("--contact", metavar="ADDRESS", help="Where to ask: an e-mail or web address.")
@click.option("--license", metavar="SPDX|URL", help="The license, such as CC-BY-4.0.")
@click.option("--url", metavar="URL", help="Where the folder will be found.")
@click.option("--date", metavar="YYYY-MM-DD", help="The day of publication. The clock is not asked.")
@path("--sign", "KEY", "Sign with this key file (sklar sign).", to="key")
@flag("--replace", "Replace a folder that publish wrote.")
@THREADS
@JSON
def publish(
    *, model_path: Path, out: Path, rows: int | None, seed: int, key: Path | None, replace: bool, **stated: str | None
) -> None:
    """Write a FOLDER that can be put online as it is, from a MODEL file alone. This costs no privacy.

    It holds synthetic rows (Parquet and CSV), the model, the report, schema, certificate and noisy tables, a README,
    checksums, and descriptions for Frictionless, Croissant, DCAT, Hugging Face and the OpenDP registry, with a
    checklist after NIST SP 800-226. sklar verify FOLDER makes all of it again and compares.

    \b
      sklar publish adult.sklar --out adult --publisher "Office of Statistics" --license CC-BY-4.0
      sklar publish adult.sklar --out adult --rows 1000 --sign custodian.key --replace
    """
    from sklar.trust.passport import Publication
    from sklar.trust.passport import publish as write_folder

    options = {"rows": rows, "seed": seed, "publication": Publication(**stated), "key": key, "replace": replace}
    with show_progress() as progress:
        done = write_folder(model_path, out, progress=progress, **options)  # type: ignore[arg-type]
    finish(
        done.to_dict() | {"spent_epsilon": 0},
        f"{done.rows:,} synthetic rows (seed {done.seed}) and {len(done.files)} files are in {done.folder}.",
        *([] if done.signer is None else [f"Signed by {done.signer}."]),
        f"Safe to publish: made from the model file alone. No privacy was spent. Check it: sklar verify {done.folder}",
    )
