"""`sklar sign`: say who released a model file."""

from __future__ import annotations

from pathlib import Path

import click

from sklar.cli.console import print_json, say
from sklar.cli.options import JSON


@click.command(short_help="Sign a model file, or make a key.")
@click.argument("model_path", metavar="[MODEL]", required=False, type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), metavar="KEY", help="Sign with this key file.")
@click.option(
    "--new-key",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Make a key file, for its owner alone, and KEY.pub beside it to hand out.",
)
@JSON
def sign(*, model_path: Path | None, key: Path | None, new_key: Path | None, as_json: bool) -> None:
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
        named = signing.new_key(new_key)
        if as_json:
            print_json({"key": new_key, "public_key": f"{new_key}.pub", "fingerprint": named})
            return
        say(
            f"The key is in {new_key}, for its owner alone: whoever has it can sign. {new_key}.pub is public. "
            "Its fingerprint:"
        )
        click.echo(named)
        return
    if model_path is None or key is None:
        raise click.UsageError("Give both MODEL and --key KEY to sign.")

    from sklar.trust.verify import verify

    found = verify(model_path)
    if not found.passed:
        failed = next(check for check in found.checks if not check.passed)
        raise SignatureError(f"'{model_path}' is not signed: it contradicts its certificate ({failed.detail}).")
    path, signature = signing.sign_file(model_path, key)
    if as_json:
        print_json({"signature": path, "sha256": signature.sha256, "fingerprint": signature.fingerprint})
        return
    say(f"The signature of {model_path} by {signature.fingerprint} is in {path}.")
