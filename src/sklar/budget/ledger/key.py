"""Who may write a ledger: a key of 32 bytes, in a file for its owner alone or in the environment."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from sklar.errors import LedgerError

VARIABLE = "SKLAR_LEDGER_KEY"
_KEY = re.compile(r"[0-9a-f]{64}")


def find_key(file: Path | None) -> bytes | None:
    """The key of this file, else that of the environment, else None."""
    if file is not None:
        return _read_key(file)
    text = os.environ.get(VARIABLE)
    return None if text is None else _parse_key(text, f"the environment's {VARIABLE}")


def make_key(file: Path) -> None:
    """Write a new key to a file that only its owner can read; a file that is there already stays as it is."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(
            f"the key file '{file}' cannot be written: {error.strerror or error}. Name another."
        ) from None
    with os.fdopen(handle, "w") as opened:
        opened.write(secrets.token_hex(32) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def key_name(key: bytes) -> str:
    """What a ledger calls its key: enough to notice another one, of no use to guess it."""
    return hmac.new(key, b"sklar ledger key", hashlib.sha256).hexdigest()[:16]


def sign(key: bytes, head: str) -> str:
    """What only a holder of the key can write beside a head."""
    return hmac.new(key, b"sklar ledger head " + head.encode(), hashlib.sha256).hexdigest()


def is_signed(key: bytes, head: str, signature: str) -> bool:
    """Whether a holder of the key wrote this beside the head."""
    return hmac.compare_digest(sign(key, head), signature)


def _read_key(file: Path) -> bytes:
    try:
        with file.open() as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(1024)
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"the key file '{file}' cannot be read ({type(error).__name__}). Check the path.") from None
    # Elsewhere than on POSIX these bits say nothing.
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise LedgerError(
            f"the key file '{file}' must be for its owner alone, got mode {stat.S_IMODE(mode):04o}. Run: "
            f"chmod 600 {file}"
        )
    return _parse_key(text, f"the key file '{file}'")


def _parse_key(text: str, where: str) -> bytes:
    if not _KEY.fullmatch(text.strip()):
        raise LedgerError(f"{where} must hold 64 hexadecimal digits. Make one with: openssl rand -hex 32")
    return bytes.fromhex(text.strip())
