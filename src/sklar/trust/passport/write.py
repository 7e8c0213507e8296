"""Writes the folder of a release: built beside its place, and renamed to it when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sklar.answer.report import publishable
from sklar.draw.sample import check_draw
from sklar.errors import ModelError, OutputError
from sklar.files.archive import is_linked, load
from sklar.files.model import Model
from sklar.files.tables import write_tables
from sklar.files.write import write_text
from sklar.machine.progress import SILENT, Progress
from sklar.trust.passport import layout
from sklar.trust.passport.checklist import checklist
from sklar.trust.passport.croissant import croissant
from sklar.trust.passport.dcat import dcat
from sklar.trust.passport.facts import Content, Facts
from sklar.trust.passport.frictionless import data_package
from sklar.trust.passport.layout import FILES
from sklar.trust.passport.publication import Publication
from sklar.trust.passport.readme import readme
from sklar.trust.passport.registry import registry_entry
from sklar.trust.sign import check_key, sign_file, signature_path
from sklar.trust.verify import verify

FORMAT = "sklar-passport"
VERSION = 1
# Files that are large, or hold more than text.
BINARY = (layout.MODEL, layout.ROWS_PARQUET, layout.ROWS_CSV, layout.TABLES)
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A folder that was written: where, with how many rows drawn by which seed, its files, and who signed it."""

    folder: Path
    rows: int
    seed: int
    files: tuple[str, ...]
    signer: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "folder": str(self.folder),
            "rows": self.rows,
            "seed": self.seed,
            "files": list(self.files),
            "signer": self.signer,
        }


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
    is refused; with `replace` one that `publish` wrote is replaced. So is a model that contradicts its certificate.
    """
    path, folder = Path(model), Path(out)
    rows, seed = check_draw(rows, seed)
    _check_place(folder, replace=replace)
    if key is not None:
        check_key(key)
    if is_linked(path):
        raise ModelError(
            f"publish takes a model of one table, and '{path}' is of linked tables. Write rows with sklar sample, and "
            "put the model beside them."
        )
    loaded = load(path)
    progress.stage("verify")
    failed = [check for check in verify(path).checks if not check.passed and check.name != "signature"]
    if failed:
        raise ModelError(
            f"'{path}' is not published: it contradicts its certificate ({failed[0].name}: {failed[0].detail})."
        )
    rows = loaded.n_rows if rows is None else rows
    with _building(folder, replace=replace) as place:
        shutil.copyfile(path, place / layout.MODEL)
        for name in (layout.ROWS_PARQUET, layout.ROWS_CSV):
            write_rows(loaded, place / name, rows, seed, progress)
        progress.stage("describe")
        write_tables(loaded.measured, place / layout.TABLES)
        facts = Facts(
            model=loaded,
            rows=rows,
            seed=seed,
            publication=publication or Publication(),
            contents={name: content_of(place / name) for name in BINARY},
        )
        for name, text in texts(facts).items():
            write_text(place / name, text)
        signer = None
        if key is not None:
            _, signature = sign_file(place / layout.MODEL, key)
            signer = signature.fingerprint
        write_text(place / layout.SUMS, sums({each.name: content_of(each) for each in place.iterdir()}))
        if key is not None:
            sign_file(place / layout.SUMS, key)
        written = tuple(sorted(each.name for each in place.iterdir()))
    return Published(folder=folder, rows=rows, seed=seed, files=written, signer=signer)


def write_rows(model: Model, path: Path, rows: int, seed: int, progress: Progress) -> None:
    """Draw rows into a file, the same ones whenever it is done."""
    from threadpoolctl import threadpool_limits

    # What a product of matrices is in its last bits depends on how many threads it has, and rows depend on that.
    with threadpool_limits(1, user_api="blas"):
        model.write(path, rows, seed=seed, progress=progress)


def texts(facts: Facts) -> dict[str, str]:
    """Every text file of the folder but its list of checksums, by name. `sklar verify` makes them again."""
    return {
        layout.README: readme(facts),
        layout.REPORT: publishable(facts.model, file_name=layout.MODEL),
        layout.SCHEMA: facts.schema.to_toml(),
        layout.CERTIFICATE: as_json(facts.certificate.to_dict()),
        layout.FRICTIONLESS: as_json(data_package(facts)),
        layout.CROISSANT: as_json(croissant(facts)),
        layout.DCAT: as_json(dcat(facts)),
        layout.REGISTRY: registry_entry(facts),
        layout.CHECKLIST: checklist(facts),
        layout.PASSPORT: as_json(passport(facts)),
    }


def passport(facts: Facts) -> dict[str, Any]:
    """How the folder was made: all that it does not take from the model."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "sklar": version("sklar"),
        "rows": facts.rows,
        "seed": facts.seed,
        "publication": facts.publication.to_dict(),
        "files": dict(FILES),
    }


def as_json(document: Mapping[str, Any]) -> str:
    """The one way in which JSON is written here."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sums(contents: Mapping[str, Content]) -> str:
    """Checksums as sha256sum writes and checks them."""
    return "".join(f"{contents[name].sha256}  {name}\n" for name in sorted(contents))


def content_of(path: Path) -> Content:
    """The size and the SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(_AT_ONCE):
            digest.update(part)
            size += len(part)
    return Content(size=size, sha256=digest.hexdigest())


def expected(*, signed: bool) -> set[str]:
    """The names of all files of a folder."""
    return {*FILES, *(signature_path(name).name for name in layout.SIGNED if signed)}


def _check_place(folder: Path, *, replace: bool) -> None:
    """Refuse, before any work is done, a place where the folder cannot go."""
    if not folder.name:
        raise OutputError(f"'{folder}' has no name of its own. Name a new folder.")
    if not folder.parent.is_dir():
        raise OutputError(f"the folder '{folder.parent}' does not exist. Create it first.")
    if not os.access(folder.parent, os.W_OK):
        raise OutputError(f"the folder '{folder.parent}' cannot be written to. Choose another, or ask for the right.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OutputError(f"'{folder}' is no folder. Name a new one.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / layout.PASSPORT).is_file():
        raise OutputError(f"the folder '{folder}' is not empty, and not one that publish wrote. Name a new one.")
    if not replace:
        raise OutputError(f"the folder '{folder}' holds a release already. Name a new one, or replace it: --replace.")


@contextmanager
def _building(folder: Path, *, replace: bool) -> Iterator[Path]:
    """A new folder beside its place, which takes its name when the block ends well, and vanishes when it does not."""
    token = secrets.token_hex(8)
    place, old = (folder.with_name(f".{folder.name}.{token}.{end}") for end in ("part", "old"))
    try:
        place.mkdir()
        yield place
        if replace and folder.exists():
            folder.rename(old)
        try:
            place.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise OutputError(
            f"the folder '{folder}' could not be written: {error.strerror or error}. Nothing was left behind."
        ) from None
    finally:
        for left in (place, old):
            with suppress(OSError):
                shutil.rmtree(left)
