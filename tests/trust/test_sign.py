from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sklar.cli import cli
from sklar.errors import SignatureError
from sklar.trust.sign import new_key, read_signature, sign_file, signature_path, signer_of
from sklar.trust.verify import verify
from tests.trust.forge import forged


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "custodian.key")
    return tmp_path / "custodian.key"


@pytest.fixture
def model(genuine: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "m.sklar"
    path.write_bytes(genuine["binary"].read_bytes())
    return path


def test_a_key_is_its_owners_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "k"
    named = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert named.startswith("SHA256:")
    assert len(named) == len("SHA256:") + 43
    assert signer_of(f"{path}.pub") == named
    before = path.read_bytes()
    with pytest.raises(SignatureError, match=r"^key file '.*' exists already, and a key is never overwritten\. Name"):
        new_key(path)
    assert path.read_bytes() == before
    with pytest.raises(SignatureError, match=r"cannot be made: No such file or directory\.$"):
        new_key(tmp_path / "none" / "k")


def test_verify_names_the_key(model: Path, key: Path) -> None:
    path, signature = sign_file(model, key)
    assert path == signature_path(model) == Path(f"{model}.sig")
    found = verify(model)
    assert found.passed
    assert found.signer == signature.fingerprint == signer_of(f"{key}.pub")
    assert f"Whoever holds the key {signature.fingerprint} has signed this file." in found.lines()
    assert f"by {signature.fingerprint}; compare that with what its custodian publishes" in found.checks[-1].detail
    assert found.to_dict()["signer"] == signature.fingerprint
    for signer in (signature.fingerprint, f"{key}.pub"):
        assert verify(model, signer=signer).passed


def test_another_signer_or_none_fails(model: Path, key: Path, tmp_path: Path) -> None:
    other = new_key(tmp_path / "other")
    for words in ("there is none in", f"not the signer {other}"):
        found = verify(model, signer=other)
        assert not found.passed
        assert words in found.checks[-1].detail
        sign_file(model, key)


def test_a_file_that_changed_since_fails(model: Path, key: Path) -> None:
    sign_file(model, key)
    forged(model, lambda document, _: document["certificate"]["versions"].update(numpy="9.9"), model)
    found = verify(model)
    assert [check.name for check in found.checks if not check.passed] == ["signature"]
    assert "has changed since it was signed" in found.checks[-1].detail


def test_a_signature_by_another_key_fails(model: Path, key: Path, tmp_path: Path) -> None:
    """The key of one signature put into another."""
    sign_file(model, key)
    own = json.loads(signature_path(model).read_text())
    new_key(tmp_path / "other")
    sign_file(model, tmp_path / "other")
    other = json.loads(signature_path(model).read_text())
    signature_path(model).write_text(json.dumps(own | {"public_key": other["public_key"]}))
    with pytest.raises(SignatureError, match="is not one by its key"):
        read_signature(model)
    assert not verify(model).passed


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("no", "is not a signature by sklar sign"),
        (" " * 5_000, "is larger than any key or signature"),
        ({"public_key": "AAAA"}, "holds no Ed25519 key and signature"),
        ({"signature": "?"}, "holds no Ed25519 key and signature"),
        ({"version": 2}, "is a signature of another version"),
        ({"algorithm": "none"}, "is a signature of another version"),
        ({"remark": "x"}, "is not a signature by sklar sign"),
        ({"format": "x"}, "is not a signature by sklar sign"),
        ({"sha256": "0" * 64}, "is the signature of another file"),
    ],
)
def test_signatures_that_cannot_be_read(model: Path, key: Path, change: dict[str, object] | str, match: str) -> None:
    sign_file(model, key)
    path = signature_path(model)
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SignatureError, match=match):
        read_signature(model)
    assert not verify(model).passed


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(model: Path, key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(SignatureError, match=rf"must be for its owner alone, got mode {mode:04o}\. .* chmod 600"):
        sign_file(model, key)
    assert not signature_path(model).exists()


def test_keys_that_are_none(model: Path, key: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    for call, message in (
        (
            lambda: sign_file(model, tmp_path / "none"),
            r"^key file '.*' does not exist\. Make one: sklar sign --new-key",
        ),
        (lambda: sign_file(model, tmp_path / "text"), "holds no Ed25519 key without a password"),
        (
            lambda: signer_of(str(tmp_path / "text")),
            r"a signer must be a fingerprint \(SHA256:\.\.\.\) or a public key",
        ),
        (lambda: signer_of(str(tmp_path / "none.pub")), "cannot be read: No such file"),
        (lambda: sign_file(tmp_path / "none.sklar", key), "cannot be read: No such file"),
    ):
        with pytest.raises(SignatureError, match=message):
            call()


def test_the_command_line_signs_and_verifies(model: Path, tmp_path: Path) -> None:
    key = tmp_path / "new.key"
    made = run("sign", "--new-key", key)
    assert made.exit_code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    named = made.output.splitlines()[-1]
    signed = run("sign", model, "--key", key)
    assert signed.exit_code == 0
    assert named in signed.output
    shown = run("verify", model, "--signer", named)
    assert shown.exit_code == 0
    assert f"ok   signature: by {named}, the signer that was asked for" in shown.output
    assert run("verify", model, "--signer", f"{key}.pub", "--json").exit_code == 0
    told = json.loads(run("sign", model, "--key", key, "--json").output)
    assert told["fingerprint"] == named
    assert json.loads(run("sign", "--new-key", tmp_path / "b.key", "--json").output)["public_key"].endswith("b.key.pub")


def test_what_contradicts_its_certificate_is_not_signed(model: Path, key: Path) -> None:
    forged(model, lambda document, _: document["certificate"].update(epsilon=0.5), model)
    done = run("sign", model, "--key", key)
    assert isinstance(done.exception, SignatureError)
    assert "is not signed: it contradicts its certificate" in str(done.exception)
    assert not signature_path(model).exists()


@pytest.mark.parametrize("line", [["sign"], ["sign", "m.sklar"], ["sign", "m.sklar", "--key", "k", "--new-key", "k"]])
def test_a_model_and_a_key_or_a_new_key(line: list[str]) -> None:
    done = run(*line)
    assert done.exit_code == 2
    assert "Give" in done.output
