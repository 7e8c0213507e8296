"""`sklar sign`: say who released a model file."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import JSON, finish, is_given
from sklar.cli.options import PATH, path


@click.command(short_help="Sign a model file, or make a key.")
@click.argument("model_path", metavar="[MODEL]", required=False, type=PATH)
@path("--key", "KEY", "Sign with this key file.")
@path("--new-key", "KEY", "Make a key file, for its owner alone, and KEY.pub beside it to hand out.")
@JSON
def sign(*, model_path: Path | None, key: Path | None, new_key: Path | None) -> None:
    """Sign a MODEL file with a custodian's key (Ed25519). The signature goes to MODEL.sig.

    A file that contradicts its certificate is not signed. Publish the key's fingerprint where readers of the release
    can find it; they give it to verify --signer.

    \b
      sklar sign --new-key custodian.key
      sklar sign adult.sklar --key custodian.key
    """
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

    from sklar.trust.verify import verify

    failed = next((check for check in verify(model_path).checks if not check.passed), None)
    if failed is not None:
        raise SignatureError(f"'{model_path}' is not signed: it contradicts its certificate ({failed.detail}).")
    out, signature = signing.sign_file(model_path, key)
    finish(
        {"signature": out, "sha256": signature.sha256, "fingerprint": signature.fingerprint},
        f"The signature of {model_path} by {signature.fingerprint} is in {out}.",
    )
