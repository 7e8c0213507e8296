"""Who released a file: a signature by the custodian's key (Ed25519), in a file of its own beside the model.

`verify` shows that a file agrees with itself; a signature shows who says that this code made it from these rows. The
signature file is JSON: the public key, the SHA-256 of the model file, and the signature of that digest under a name of
our own, so that it can mean nothing else. A key file is PEM (PKCS #8).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sklar.errors import SignatureError
from sklar.files.write import write_text
from sklar.machine.wording import failing, said

FORMAT = "sklar-signature"
VERSION = 1

_MAX_SIZE = 4096
_KEYS = {"format", "version", "algorithm", "public_key", "sha256", "signature"}


class Signature(NamedTuple):
    """A signature that is right: whose it is, and of which bytes."""

    fingerprint: str
    sha256: str


def signature_path(model: str | Path) -> Path:
    """Where the signature of a model file stands: beside it, with .sig behind its name."""
    return Path(f"{model}.sig")


def new_key(path: str | Path) -> str:
    """Make a key file for its owner alone, and beside it (.pub) the public key to hand out; the fingerprint."""
    path, key = Path(path), Ed25519PrivateKey.generate()
    text = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    there = f"key file '{path}' exists already, and a key is never overwritten. Name another."
    unmade = failing(SignatureError, f"key file '{path}' cannot be made: {{why}}.", OSError)
    with unmade, failing(SignatureError, there, FileExistsError):
        # Made with its mode, so that there is no moment at which others could open it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    public = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    write_text(path.with_name(f"{path.name}.pub"), public.decode())
    return fingerprint(key.public_key())


def fingerprint(key: Ed25519PublicKey) -> str:
    """The name of a key: the SHA-256 of its 32 bytes, in base64."""
    digest = hashlib.sha256(key.public_bytes_raw()).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def sign_file(model: str | Path, key: str | Path) -> tuple[Path, Signature]:
    """Sign a file as it is, and say where the signature stands."""
    private, path = private_key(Path(key)), Path(model)
    sha256, public = _digest(path), private.public_key()
    document = {
        "format": FORMAT,
        "version": VERSION,
        "algorithm": "Ed25519",
        "public_key": base64.b64encode(public.public_bytes_raw()).decode(),
        "sha256": sha256,
        "signature": base64.b64encode(private.sign(_message(sha256))).decode(),
    }
    write_text(signature_path(path), json.dumps(document, indent=1) + "\n")
    return signature_path(path), Signature(fingerprint(public), sha256)


def read_signature(model: str | Path) -> Signature | None:
    """The signature of a model file, checked; None where there is none."""
    path = signature_path(model)
    if not path.exists():
        return None
    try:
        document = json.loads(_small(path))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.keys() != _KEYS or document["format"] != FORMAT:
        raise SignatureError(f"'{path}' is not a signature by sklar sign. Get an intact copy.")
    if document["version"] != VERSION or document["algorithm"] != "Ed25519":
        raise SignatureError(f"'{path}' is a signature of another version. Use the Sklar that wrote it.")
    damaged = f"'{path}' holds no Ed25519 key and signature. Get an intact copy."
    with failing(SignatureError, damaged, (ValueError, TypeError)):
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(document["public_key"], validate=True))
        signature = base64.b64decode(document["signature"], validate=True)
    sha256 = _digest(Path(model))
    if document["sha256"] != sha256:
        raise SignatureError(f"'{path}' is the signature of another file: '{model}' has changed since it was signed.")
    forged = f"the signature in '{path}' is not one by its key. Do not rely on it."
    with failing(SignatureError, forged, InvalidSignature):
        key.verify(signature, _message(sha256))
    return Signature(fingerprint(key), sha256)


def signer_of(given: str) -> str:
    """The fingerprint that a caller gives, by itself or as the file of a public key."""
    if given.startswith("SHA256:"):
        return given
    try:
        key = pem.load_pem_public_key(_small(Path(given)))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(f"a signer must be a fingerprint (SHA256:...) or a public key file, got '{given}'.")
    return fingerprint(key)


def private_key(path: Path) -> Ed25519PrivateKey:
    """The key to sign with, from a file that its owner alone may read."""
    missing = f"key file '{path}' does not exist. Make one: sklar sign --new-key {path}"
    with failing(SignatureError, missing, OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise SignatureError(said("trust.open_key", path=path, mode=mode))
    try:
        key = pem.load_pem_private_key(_small(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"'{path}' holds no Ed25519 key without a password. Make one: sklar sign --new-key FILE")
    return key


def _small(path: Path) -> bytes:
    with failing(SignatureError, f"'{path}' cannot be read: {{why}}.", OSError), path.open("rb") as file:
        text = file.read(_MAX_SIZE + 1)
    if len(text) > _MAX_SIZE:
        raise SignatureError(f"'{path}' is larger than any key or signature.")
    return text


def _digest(path: Path) -> str:
    with failing(SignatureError, f"'{path}' cannot be read: {{why}}.", OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _message(sha256: str) -> bytes:
    return f"{FORMAT} {VERSION} sha256 {sha256}".encode()
