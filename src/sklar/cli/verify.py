"""`sklar verify`: recompute what a model file cost, and check a published folder against its model."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, print_figures, show_progress
from sklar.cli.options import PATH, THREADS, flag
from sklar.machine.progress import SILENT


@click.command(short_help="Recompute what a model file cost.")
@click.argument("model_path", metavar="MODEL|FOLDER", type=PATH)
@flag("--refit", "Fit the model again to the tables of the file, and compare. Takes as long as the release did.")
@click.option(
    "--signer", metavar="FINGERPRINT|KEY.pub", help="Fail unless this key has signed the file (see sklar sign)."
)
@THREADS
@JSON
def verify(*, model_path: Path, refit: bool, signer: str | None) -> None:
    """Check a MODEL file as a stranger would, and say what may be concluded.

    Recomputes what its tables cost, tests that they hold the noise that they state, and refuses anything in the file
    that Sklar does not write. A genuine file fails less than once in a million. A signature beside it (MODEL.sig) is
    checked, too. Of a FOLDER that publish wrote, every file is made again from its model and compared.

    Exit code 1 when anything in the file contradicts its privacy certificate.

    \b
      sklar verify adult.sklar
      sklar verify adult.sklar --refit --signer custodian.key.pub
      sklar verify published/
    """
    if model_path.is_dir():
        from sklar.trust.passport import verify_folder as recompute
    else:
        from sklar.trust.verify import verify as recompute
    # Rows are drawn again, or a model is fitted: that may take a while.
    if refit or model_path.is_dir():
        with show_progress() as progress:
            result = recompute(model_path, refit=refit, signer=signer, progress=progress)
    else:
        result = recompute(model_path, signer=signer, progress=SILENT)
    print_figures(result, passed=result.passed)
