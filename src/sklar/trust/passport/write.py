"""Writes the folder of a release: built beside its place, and renamed to it when it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sklar.machine.progress import SILENT, Progress
from sklar.trust.passport.publication import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A folder that was written: where, with how many rows drawn by which seed, its files, and who signed it."""

    folder: Path
    rows: int
    seed: int
    files: tuple[str, ...]
    signer: str | None = None


def publish(
    model: str | Path,
    out: str | Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    publication: Publication | None = None,
    key: str | Path | None = None,
    replace: bool = False,
    progress: Progress = SILENT,
) -> Published:
    """Write the folder `out` from a model file alone. Costs no privacy.

    `rows` are as many as the original has unless told otherwise. `key` is the key file to sign with. An existing folder
    is refused; with `replace` one that `publish` wrote is replaced.
    """
    raise NotImplementedError
