"""Writes the folder of a release, and checks one as a stranger would who has only the folder.

Every file follows from the model and from `passport.json`: to check, it is made again and compared. Texts are compared
byte by byte where this Sklar wrote them; a later one may word them otherwise, and then compares only what they state of
the model (certificate, schema) and their checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from sklar.answer.report import publishable
from sklar.draw.sample import check_draw
from sklar.errors import ModelError, OutputError, SklarError
from sklar.files.archive import is_linked, load
from sklar.files.model import Model
from sklar.files.tables import write_tables
from sklar.files.write import write_text
from sklar.machine.progress import SILENT, Progress
from sklar.trust.passport.facts import (
    CERTIFICATE,
    DATA,
    FILES,
    MODEL,
    PASSPORT,
    REPORT,
    ROWS_CSV,
    ROWS_PARQUET,
    SCHEMA,
    SIGNED,
    SUMS,
    TABLES,
    Content,
    Facts,
    Publication,
    facts_of,
)
from sklar.trust.passport.prose import checklist, readme, yaml
from sklar.trust.passport.standards import MARK, croissant, data_package, dcat, registry_entry
from sklar.trust.sign import private_key, sign_file, signature_path, signer_of
from sklar.trust.verify import Check, Verification, judge, signature_checks, verify

_FORMAT = {"format": "sklar-passport", "version": 1}
_MAX_PASSPORT = 1 << 16
_BATCH_ROWS = 1 << 18
_REGISTRY_HEAD = f"""\
# A draft for the registry of differential privacy deployments (registry.opendp.org), made from the model file.
# Fill in what is marked "{MARK}", set the status and the authors of the entry, and send it in.
"""


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
        return asdict(self) | {"folder": str(self.folder), "files": list(self.files)}


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
        private_key(Path(key))
    if is_linked(path):
        remedy = "Write rows with sklar sample, and put the model beside them."
        raise ModelError(f"publish takes a model of one table, and '{path}' is of linked tables. {remedy}")
    loaded = load(path)
    progress.stage("verify")
    for check in verify(path).checks:
        if not check.passed and check.name != "signature":
            wrong = f"it contradicts its certificate ({check.name}: {check.detail})"
            raise ModelError(f"'{path}' is not published: {wrong}.")
    rows, signer = loaded.n_rows if rows is None else rows, None
    with _building(folder, replace=replace) as place:
        shutil.copyfile(path, place / MODEL)
        for name in (ROWS_PARQUET, ROWS_CSV):
            _write_rows(loaded, place / name, rows, seed, progress)
        progress.stage("describe")
        write_tables(loaded.measured, place / TABLES)
        contents = {name: content_of(place / name) for name in DATA}
        for name, text in _texts(facts_of(loaded, rows, seed, publication or Publication(), contents)).items():
            write_text(place / name, text)
        if key is not None:
            signer = sign_file(place / MODEL, key)[1].fingerprint
        write_text(place / SUMS, sums({each.name: content_of(each) for each in place.iterdir()}))
        if key is not None:
            sign_file(place / SUMS, key)
        files = tuple(sorted(each.name for each in place.iterdir()))
    return Published(folder=folder, rows=rows, seed=seed, files=files, signer=signer)


def _write_rows(model: Model, path: Path, rows: int, seed: int, progress: Progress) -> None:
    """Draw rows into a file, the same ones whenever it is done."""
    from threadpoolctl import threadpool_limits

    # The last bits of a product of matrices depend on how many threads it has, and rows depend on that.
    with threadpool_limits(1, user_api="blas"):
        model.write(path, rows, seed=seed, progress=progress)


def _texts(facts: Facts) -> dict[str, str]:
    """Every text file of the folder but its list of checksums, by name."""
    return {
        "README.md": readme(facts),
        REPORT: publishable(facts.model, file_name=MODEL),
        SCHEMA: facts.model.schema.to_toml(),
        CERTIFICATE: _json(facts.model.certificate.to_dict()),
        "datapackage.json": _json(data_package(facts)),
        "croissant.json": _json(croissant(facts)),
        "dcat.jsonld": _json(dcat(facts)),
        "opendp_registry.yaml": _REGISTRY_HEAD + yaml(registry_entry(facts)),
        "nist_sp_800_226.md": checklist(facts),
        PASSPORT: _json(_passport(facts)),
    }


def _passport(facts: Facts) -> dict[str, Any]:
    """How the folder was made: all that it does not take from the model."""
    return {
        **_FORMAT,
        "sklar": version("sklar"),
        "rows": facts.rows,
        "seed": facts.seed,
        "publication": asdict(facts.publication),
        "files": dict(FILES),
    }


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sums(contents: Mapping[str, Content]) -> str:
    """Checksums as sha256sum writes and checks them."""
    return "".join(f"{contents[name].sha256}  {name}\n" for name in sorted(contents))


def content_of(path: Path) -> Content:
    """The size and the SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Content(size=file.tell(), sha256=digest)


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
    if not (folder / PASSPORT).is_file():
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
        why = error.strerror or error
        raise OutputError(f"the folder '{folder}' could not be written: {why}. Nothing was left behind.") from None
    finally:
        for left in (place, old):
            with suppress(OSError):
                shutil.rmtree(left)


def verify_folder(
    path: str | Path, *, refit: bool = False, signer: str | None = None, progress: Progress = SILENT
) -> Verification:
    """Check a folder that `publish` wrote: its files, its checksums, its model, and each file against the model.

    `refit` and `signer` are those of `verify`.
    """
    place = Path(path)
    wanted = None if signer is None else signer_of(signer)
    checks = [_attempt("files", _check_files, place)]
    if checks[-1].passed:
        checks.append(_attempt("checksums", _check_sums, place))
    if not checks[-1].passed:
        return Verification(path=str(place), checks=tuple(checks), certificate=None)
    signature, named = signature_checks([place / name for name in SIGNED], wanted, "the folder is not signed")
    verified = verify(place / MODEL, refit=refit, progress=progress)
    # The signature of the model is one of the folder's.
    checks += [check for check in verified.checks if check.name != "signature"]
    if verified.passed and verified.certificate is not None:
        checks += _check_content(place, progress)
    return replace(verified, path=str(place), checks=(*checks, *signature), signer=named)


def _attempt(name: str, compare: Callable[..., str], *arguments: Any) -> Check:
    """A check that says what it compared, or why it fails."""
    try:
        return judge(name, compare(*arguments))
    except SklarError as error:
        return judge(name, wrong=str(error))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # One clear error, whatever a damaged file makes a reader raise.
        return judge(name, wrong=f"a file cannot be read ({type(error).__name__})")


def _check_files(place: Path) -> str:
    present = {each.name: each.lstat() for each in place.iterdir()}
    odd = [name for name, each in present.items() if not stat.S_ISREG(each.st_mode)]
    if odd:
        raise OutputError(f"'{odd[0]:.80}' is a link, a folder or no plain file")
    signatures = [signature_path(name).name for name in SIGNED]
    expected = {*FILES, *(signatures if signatures[-1] in present else [])}
    if unknown := sorted(present.keys() - expected):
        raise OutputError(f"'{unknown[0]:.80}' is none of the files that publish writes. Remove it")
    if missing := sorted(expected - present.keys()):
        raise OutputError(f"'{missing[0]}' is missing")
    return f"{len(present)} files, all of them known, and none is missing"


def _check_sums(place: Path) -> str:
    outside = {SUMS, signature_path(SUMS).name}
    contents = {each.name: content_of(each) for each in place.iterdir() if each.name not in outside}
    listed = _small(place / SUMS)
    if listed != sums(contents):
        named = {line[66:]: line[:64] for line in listed.splitlines()}
        changed = sorted(name for name, each in contents.items() if named.get(name) != each.sha256)
        if changed:
            raise OutputError(f"'{changed[0]}' is not the file that {SUMS} states")
        raise OutputError(f"{SUMS} is not written as sha256sum writes it")
    return f"the SHA-256 of {len(contents)} files are those of {SUMS}"


def _small(path: Path) -> str:
    """The text of a small file; of a larger one its beginning, which is never what is expected."""
    with path.open("rb") as file:
        return file.read(_MAX_PASSPORT + 1).decode("utf-8", errors="replace")


def _check_content(place: Path, progress: Progress) -> list[Check]:
    """Each file against the model."""
    model = load(place / MODEL)
    try:
        facts, wrote = _read_passport(place, model)
    except SklarError as error:
        return [judge("passport", wrong=str(error))]
    with tempfile.TemporaryDirectory() as again:
        return [
            _attempt("texts", _check_texts, place, facts, wrote),
            _attempt("tables", _check_tables, place, Path(again), model),
            _attempt("rows", _check_rows, place, Path(again), facts, progress),
        ]


def _read_passport(place: Path, model: Model) -> tuple[Facts, str]:
    """What the passport says, and which Sklar wrote it."""
    text, refused = _small(place / PASSPORT), OutputError(f"{PASSPORT} is not one that publish wrote")
    try:
        document: Any = json.loads(text)
        rows, seed, wrote = document["rows"], document["seed"], document["sklar"]
        publication = Publication.from_dict(document["publication"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise refused from None
    if {key: document.get(key) for key in _FORMAT} != _FORMAT:
        raise OutputError(f"{PASSPORT} is of another format. Use the Sklar that wrote it")
    # A row is at least the end of its line: no more rows are drawn than the file could hold.
    size = (place / ROWS_CSV).stat().st_size
    if type(rows) is not int or not 1 <= rows <= size or type(seed) is not int or not 0 <= seed < 2**64:
        raise OutputError(f"{PASSPORT} must state rows and a seed of the files beside it")
    facts = facts_of(model, rows, seed, publication, {name: content_of(place / name) for name in DATA})
    if not isinstance(wrote, str) or _json(_passport(facts) | {"sklar": wrote}) != text:
        raise refused
    return facts, wrote


def _check_texts(place: Path, facts: Facts, wrote: str) -> str:
    same = wrote == version("sklar")
    # A later Sklar writes certificate and schema as this one does: they are the model's, in a format of its own.
    compared = {name: text for name, text in _texts(facts).items() if same or name in (SCHEMA, CERTIFICATE)}
    for name, text in compared.items():
        content, path = text.encode(), place / name
        if path.stat().st_size != len(content) or path.read_bytes() != content:
            raise OutputError(f"'{name}' is not what the model says")
    if same:
        return f"{len(compared)} texts, certificate and schema among them, are those that the model makes"
    others = f"other texts were written by Sklar {wrote:.40} and are compared by checksum only"
    return f"certificate and schema are the model's; {others}"


def _check_tables(place: Path, again: Path, model: Model) -> str:
    write_tables(model.measured, again / TABLES)
    return f"{_check_parquet(place / TABLES, again / TABLES):,} noisy counts are those of the model"


def _check_rows(place: Path, again: Path, facts: Facts, progress: Progress) -> str:
    stated = _height(place / ROWS_PARQUET)
    if stated != facts.rows:
        raise OutputError(f"'{ROWS_PARQUET}' has {stated:,} rows, and {PASSPORT} states {facts.rows:,}")
    for name in (ROWS_PARQUET, ROWS_CSV):
        _write_rows(facts.model, again / name, facts.rows, facts.seed, progress)
    _check_parquet(place / ROWS_PARQUET, again / ROWS_PARQUET)
    if content_of(again / ROWS_CSV) != facts.contents[ROWS_CSV]:
        raise OutputError(f"'{ROWS_CSV}' does not hold the rows that the model and seed {facts.seed} give")
    return f"{facts.rows:,} rows, drawn again from the model with seed {facts.seed}, are those of both files"


def _height(path: Path) -> int:
    return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def _check_parquet(path: Path, again: Path) -> int:
    """Refuse a Parquet file with other rows than this one; bytes may differ where another polars wrote it."""
    rows = _height(again)
    if content_of(path) == content_of(again):
        return rows
    same = pl.read_parquet_schema(path) == pl.read_parquet_schema(again) and _height(path) == rows
    # In slices, to bound memory.
    for start in range(0, rows if same else 0, _BATCH_ROWS):
        one, other = (pl.scan_parquet(each).slice(start, _BATCH_ROWS).collect() for each in (path, again))
        same = same and one.equals(other, null_equal=True)
    if not same:
        raise OutputError(f"'{path.name}' does not hold what the model gives")
    return rows
