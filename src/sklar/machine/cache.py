"""Where compiled code is kept between runs: a folder that nobody else can write to.

numba unpickles what it finds in its cache, so that whoever can put a file there runs code as the user. Its own choices
are the package's folder, the user's, and whatever `NUMBA_CACHE_DIR` names, and it checks none of them. Here a folder is
used only when it is the user's and closed to all others (0700), and no folder above it lets another user put one in its
place. Where no such folder can be had, code is compiled anew in every process.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# The variable that names the folder, to numba and to us.
FOLDER = "NUMBA_CACHE_DIR"


def keep_compiled_code() -> None:
    """Tell numba where to keep compiled code."""
    if not hasattr(os, "geteuid"):
        # Rights are another matter there, and a user's folders are the user's by default.
        return
    folder = next((folder for folder in _wanted() if is_private(folder)), None) or _fresh()
    os.environ[FOLDER] = str(folder)
    if "numba" in sys.modules:
        # It has read the environment already.
        sys.modules["numba"].config.CACHE_DIR = str(folder)


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's, writable, closed to others, and cannot be replaced by others."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return False
        for above in folder.resolve().parents:
            found = above.stat()
            others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
            if others_write or found.st_uid not in (0, os.geteuid()):
                return False
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _wanted() -> Iterator[Path]:
    """Folders to keep code in, the best first; ours are made where they are not there."""
    if named := os.environ.get(FOLDER):
        yield Path(named)
    # Not Path.expanduser, which raises for a user without a home.
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
    # In a folder for all users the name says whose it is; another user who took that name is found out.
    for parent, name in ((home, "sklar"), (temporary, f"sklar-{os.geteuid()}")):
        for each in (parent, parent / name):
            # There already, or it cannot be made: the check will tell.
            with suppress(OSError):
                each.mkdir(mode=0o700)
        yield parent / name


def _fresh() -> Path:
    """A folder for this process alone, removed when it ends."""
    import atexit
    import shutil
    import tempfile

    folder, owner = Path(tempfile.mkdtemp(prefix="sklar-")), os.getpid()

    def remove() -> None:
        # Not when a forked worker ends.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
