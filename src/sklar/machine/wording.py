"""What packages hold as data beside their code: tables of facts, and sentences for people."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from sklar.errors import SklarError


@cache
def stated(package: str, name: str) -> dict[str, Any]:
    """A TOML file of a package."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def said(key: str, /, **facts: object) -> str:
    """The sentence that a room's `said.toml` has under a key, `room.key`, with these facts where it names them."""
    room, _, name = key.partition(".")
    return str(stated(f"sklar.{room}", "said.toml")[name]).format(**facts)


def explained(error: BaseException) -> str:
    """What to say of a failure. The text of an unforeseen one might quote a row: only its type is named."""
    if isinstance(error, SklarError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted. No file was left half-written."
    if isinstance(error, MemoryError):
        return "out of memory. Use a schema with fewer levels, or a larger machine."
    return f"unexpected {type(error).__name__}. To see where, run the same command with sklar --debug."


Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


@contextmanager
def failing(error: type[SklarError], message: str, of: Kinds = Exception) -> Iterator[None]:
    """Report one error for failures of these kinds, which {kind} names; those of ours pass.

    {why} is what the system says of a file: a library's own message may quote a row.
    """
    try:
        yield
    except SklarError:
        raise
    except of as failure:
        why = str(failure.strerror or failure) if isinstance(failure, OSError) else ""
        raise error(message.replace("{kind}", type(failure).__name__).replace("{why}", why)) from None
