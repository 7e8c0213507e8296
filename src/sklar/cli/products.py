"""What a model file gives at no cost: `sklar sample`, `tables`, `report`, `publish`; and `verify` and `sign`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, TIMINGS, finish, is_given, print_figures, watched
from sklar.cli.options import MODEL, PATH, ROWS, THREADS, command, flag, option, path, written
from sklar.machine.progress import SILENT, Progress

if TYPE_CHECKING:
    from sklar.files.model import Model


@command("Draw more rows from a model, for free.", shared.ENGINE, THREADS, JSON, TIMINGS)
@shared.together(MODEL, ROWS, shared.SEED)
@option("--given", "Draw only rows that satisfy this condition, written as for sklar query.", metavar="PREDICATE")
@shared.together(shared.OUT, shared.KIND, shared.SPREADSHEET)
def sample(*, model_path: Path, rows: int | None, seed: int | None, out: str, **how: Any) -> None:
    """Draw synthetic rows from a MODEL file. This costs no privacy, however often it is done."""
    from sklar.draw.sample import check_draw
    from sklar.files.archive import load

    rows, seed = check_draw(rows, seed)
    given, engine = how["given"], how["engine"]
    under = "" if given is None else f", all with {given},"
    if given is not None and engine != "local":
        raise click.UsageError("--given draws rows on this machine. Leave out --engine.")
    model = load(model_path)
    check_out(out, tables=model.measured.tree is not None, **how)
    watched(write_rows, model, out, rows, seed, **how)
    drawn, what = rows or model.n_rows, "rows" if model.measured.tree is None else "people with all their rows"
    finish(
        {"rows": drawn, "given": given, "seed": seed, "out": out, "spent_epsilon": 0},
        f"{drawn:,} synthetic {what}{under} in {out} (seed {seed}). No privacy was spent.",
    )


def check_out(out: str, *, engine: str, spreadsheet: bool, kind: str, tables: bool = False, **_options: Any) -> None:
    """Refuse, before any privacy is spent, an output that could not be written: of one table, or of several."""
    from sklar.files.write import SUFFIXES, check_tables, check_target

    if tables and engine == "local":
        check_tables(out, kind)
        return
    if engine == "local" or spreadsheet:
        check_target(out, (".csv",) if spreadsheet else SUFFIXES)
    if engine == "local":
        return
    if spreadsheet:
        raise click.UsageError("--spreadsheet is about CSV files, and Spark writes Parquet. Leave one out.")
    from sklar.files.spark import check_folder

    check_folder(out, tables=tables)


def write_rows(
    model: Model, out: str, rows: int | None, seed: int, *, engine: str, kind: str, progress: Progress, **how: Any
) -> None:
    """Draw rows into a file, or on Spark into a folder of files; those of linked tables into files of this kind."""
    if engine == "local":
        how |= {} if model.measured.tree is None else {"kind": kind}
        model.write(out, rows, seed=seed, progress=progress, **how)
        return
    from sklar.files.spark import write_on_spark

    progress.stage("sample")
    write_on_spark(model, out, rows, seed=seed)


@command("Export the noisy tables of a model.", JSON)
@MODEL
@written("--out", "OUT.parquet", "Where the tables go.", required=True)
def tables(*, model_path: Path, out: Path) -> None:
    """Write the noisy tables of a MODEL file to Parquet, one row per cell. This costs no privacy."""
    from sklar.files.archive import load
    from sklar.files.tables import write_tables
    from sklar.files.write import check_target

    check_target(out, (".parquet",))
    model = load(model_path)
    write_tables(model.measured, out)
    stages = max(each.stage for each in model.certificate.measurements if each.order <= 2)
    finish(
        {"stages": stages, "out": out, "spent_epsilon": 0},
        f"The noisy tables of {stages} stage{'s' if stages > 1 else ''} are in {out}. No privacy was spent.",
    )


@command("A report that is safe to publish.", JSON)
@MODEL
@written("--out", "OUT.html", "Where the report goes.", required=True)
def report(*, model_path: Path, out: Path) -> None:
    """Write a report that is safe to publish, from a MODEL file alone: one HTML page that needs no network."""
    from sklar.files.model import report as make

    size = len(make(model_path, out=out).html.encode())
    finish(
        {"out": out, "bytes": size},
        f"The report is in {out} ({size / 1e6:.2f} MB).",
        "Safe to publish: made from the model file alone, which is differentially private. No privacy was spent.",
    )


@command("A folder that can be put online as it is.", THREADS, JSON)
@MODEL
@written("--out", "FOLDER", "The folder to write.", required=True)
@ROWS
@option("--seed", "Which rows are drawn; stated in the folder.", int, default=0)
@option("--publisher", "Who publishes it.", metavar="NAME")
@option("--contact", "Where to ask: an e-mail or web address.", metavar="ADDRESS")
@option("--license", "The license, such as CC-BY-4.0.", metavar="SPDX|URL")
@option("--url", "Where the folder will be found.", metavar="URL")
@option("--date", "The day of publication. The clock is not asked.", metavar="YYYY-MM-DD")
@path("--sign", "KEY", "Sign with this key file (sklar sign).", to="key")
@flag("--replace", "Replace a folder that publish wrote.")
@flag("--no-refit", "Do not fit the model again before: faster, and the folder says so.")
def publish(
    *, model_path: Path, out: Path, rows: int | None, seed: int, key: Path | None, replace: bool, **stated: Any
) -> None:
    """Write a FOLDER that can be put online as it is, from a MODEL file alone. This costs no privacy."""
    from sklar.trust import passport

    told = {"rows": rows, "seed": seed, "key": key, "replace": replace, "refit": not stated.pop("no_refit")}
    done = watched(passport.publish, model_path, out, publication=passport.Publication(**stated), **told)
    finish(
        done.to_dict() | {"spent_epsilon": 0},
        f"{done.rows:,} synthetic rows (seed {done.seed}) and {len(done.files)} files are in {done.folder}.",
        *([] if done.signer is None else [f"Signed by {done.signer}."]),
        *([] if done.recomputed else ["The model was not shown to follow from its tables, and the folder says so."]),
        f"Safe to publish: made from the model file alone. No privacy was spent. Check it: sklar verify {done.folder}",
    )


@command("Recompute what a model file cost.", THREADS, JSON)
@click.argument("model_path", metavar="MODEL|FOLDER", type=PATH)
@flag("--refit", "Fit the model again to the tables of the file, and compare. Takes as long as the release did.")
@option("--signer", "Fail unless this key has signed the file (see sklar sign).", metavar="FINGERPRINT|KEY.pub")
def verify(*, model_path: Path, refit: bool, signer: str | None) -> None:
    """Check a MODEL file as a stranger would, and say what may be concluded."""
    if model_path.is_dir():
        from sklar.trust.passport import verify_folder as recompute
    else:
        from sklar.trust.verify import verify as recompute
    # Rows are drawn again, or a model is fitted: that may take a while.
    if refit or model_path.is_dir():
        result = watched(recompute, model_path, refit=refit, signer=signer)
    else:
        result = recompute(model_path, signer=signer, progress=SILENT)
    print_figures(result, code=result.exit_code)


@command("Sign a model file, or make a key.", JSON)
@click.argument("model_path", metavar="[MODEL]", required=False, type=PATH)
@path("--key", "KEY", "Sign with this key file.")
@written("--new-key", "KEY", "Make a key file, for its owner alone, and KEY.pub beside it to hand out.")
@flag("--refit", "Before, fit the model again to the tables of the file, and compare.")
def sign(*, model_path: Path | None, key: Path | None, new_key: Path | None, refit: bool) -> None:
    """Sign a MODEL file with a custodian's key (Ed25519). The signature goes to MODEL.sig."""
    from sklar.errors import SignatureError
    from sklar.trust import sign as signing

    if (new_key is None) == (model_path is None and key is None):
        raise click.UsageError("Give a MODEL and --key KEY to sign it, or --new-key KEY alone to make a key.")
    if new_key is not None:
        fingerprint = signing.new_key(new_key)
        finish(
            {"key": new_key, "public_key": f"{new_key}.pub", "fingerprint": fingerprint},
            f"The key is in {new_key}, for its owner alone: whoever has it can sign. {new_key}.pub is public. "
            "Its fingerprint:",
        )
        if not is_given("json"):
            click.echo(fingerprint)
        return
    if model_path is None or key is None:
        raise click.UsageError("Give both MODEL and --key KEY to sign.")

    from sklar.trust.verify import verify as recompute

    found = watched(recompute, model_path, refit=refit) if refit else recompute(model_path)
    if failed := next((check for check in found.checks if check.passed is False and check.name != "signature"), None):
        raise SignatureError(f"'{model_path}' is not signed: it contradicts its certificate ({failed.detail}).")
    out, signature = signing.sign_file(model_path, key)
    unchecked = [f"{check.name}: {check.detail}" for check in found.checks if check.passed is None]
    finish(
        {"signature": out, "sha256": signature.sha256, "fingerprint": signature.fingerprint, "unchecked": unchecked},
        f"The signature of {model_path} by {signature.fingerprint} is in {out}.",
        f"Signed are these bytes, SHA-256 {signature.sha256}, with tables that agree with their certificate.",
        *(f"Signed without having been checked: {each}." for each in unchecked),
    )
