"""New files with the rights that they must have, whatever the umask, which is the process's and stays as it is."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def fresh_file(path: Path, *, private: bool = False) -> Path:
    """A new empty file beside `path`, to be written and then renamed to it; returns where it is.

    The kernel gives it the rights of any new file. A private one is its owner's alone (0600), from its first moment.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    os.close(os.open(temporary, flags, 0o600 if private else 0o666))
    if private:
        # A umask may take rights from the owner too.
        temporary.chmod(0o600)
    return temporary
