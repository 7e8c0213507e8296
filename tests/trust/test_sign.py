from __future__ import annotations

import hashlib
import json
import shutil
import stat
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sklar.errors import SignatureError
from sklar.trust.sign import new_key, read_signature, sign_file, signature_path, signer_of
from sklar.trust.verify import verify
from tests.cli.conftest import call
from tests.trust.forge import forged

run = partial(call, cwd=Path())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "custodian.key")
    return tmp_path / "custodian.key"


@pytest.fixture
def model(genuine: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(genuine["binary"], tmp_path / "m.sklar"))


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


def test_verify_names_the_key(model: Path, key: Path, tmp_path: Path) -> None:
    other = new_key(tmp_path / "other")
    assert "there is none in" in verify(model, signer=other).checks[-1].detail
    path, signature = sign_file(model, key)
    assert path == signature_path(model) == Path(f"{model}.sig")
    found = verify(model)
    assert found.passed
    assert found.signer == signature.fingerprint == signer_of(f"{key}.pub") == found.to_dict()["signer"]
    assert f"Whoever holds the key {signature.fingerprint} has signed this file." in found.lines()
    assert f"by {signature.fingerprint}; compare that with what its custodian publishes" in found.checks[-1].detail
    for signer in (signature.fingerprint, f"{key}.pub"):
        assert verify(model, signer=signer).passed
    found = verify(model, signer=other)
    assert not found.passed
    assert f"not the signer {other}" in found.checks[-1].detail
    forged(model, lambda document, _: document["certificate"]["versions"].update(numpy="9.9"), model)
    found = verify(model)
    assert [check.name for check in found.checks if check.passed is False] == ["signature"]
    assert "has changed since it was signed" in found.checks[-1].detail


REFUSED = tomllib.loads(Path(__file__).with_name("sign.toml").read_text())["refused"]


@pytest.mark.parametrize(("change", "match"), [*REFUSED, (" " * 5_000, "is larger than any key or signature")])
def test_signatures_that_cannot_be_relied_on(model: Path, key: Path, change: Any, match: str) -> None:
    path = signature_path(model)
    new_key(key.with_name("other"))
    sign_file(model, key.with_name("other"))
    other = json.loads(path.read_text())
    sign_file(model, key)
    if isinstance(change, dict):
        own = {name: other[name] if value == "another's" else value for name, value in change.items()}
        change = json.dumps(json.loads(path.read_text()) | own)
    path.write_text(change)
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
    none, text = tmp_path / "none", tmp_path / "text"
    text.write_text("no key")
    text.chmod(0o600)
    calls: tuple[tuple[Any, tuple[Any, ...], str], ...] = (
        (new_key, (none / "k",), r"cannot be made: No such file or directory\.$"),
        (sign_file, (model, none), r"^key file '.*' does not exist\. Make one: sklar sign --new-key"),
        (sign_file, (model, text), "holds no Ed25519 key without a password"),
        (sign_file, (none, key), "cannot be read: No such file"),
        (signer_of, (str(text),), r"a signer must be a fingerprint \(SHA256:\.\.\.\) or a public key"),
        (signer_of, (str(none),), "cannot be read: No such file"),
    )
    for work, arguments, message in calls:
        with pytest.raises(SignatureError, match=message):
            work(*arguments)


def test_the_command_line_signs_and_verifies(model: Path, tmp_path: Path) -> None:
    key = tmp_path / "new.key"
    made = run("sign", "--new-key", key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    named = made.output.splitlines()[-1]
    assert named in run("sign", model, "--key", key).output
    shown = run("verify", model, "--signer", named)
    assert f"ok   signature: by {named}, the signer that was asked for" in shown.output
    run("verify", model, "--signer", f"{key}.pub", "--json")
    assert json.loads(run("sign", model, "--key", key, "--json").output)["fingerprint"] == named
    assert json.loads(run("sign", "--new-key", tmp_path / "b.key", "--json").output)["public_key"].endswith("b.key.pub")


def test_signing_says_what_was_signed(model: Path, key: Path) -> None:
    done = run("sign", model, "--key", key)
    assert f"Signed are these bytes, SHA-256 {hashlib.sha256(model.read_bytes()).hexdigest()}" in done.output
    assert "Signed without having been checked: model: not recomputed (--refit)." in done.output
    assert "without having been checked" not in run("sign", model, "--key", key, "--refit").output
    assert json.loads(run("sign", model, "--key", key, "--json").output)["unchecked"]


def test_what_contradicts_its_certificate_is_not_signed(model: Path, key: Path) -> None:
    forged(model, lambda document, _: document["certificate"].update(epsilon=0.5), model)
    done = run("sign", model, "--key", key, code=1)
    assert "is not signed: it contradicts its certificate" in done.stderr
    assert not signature_path(model).exists()


@pytest.mark.parametrize("line", [["sign"], ["sign", "m.sklar"], ["sign", "m.sklar", "--key", "k", "--new-key", "k"]])
def test_a_model_and_a_key_or_a_new_key(line: list[str]) -> None:
    assert "Give" in run(*line, code=2).output
