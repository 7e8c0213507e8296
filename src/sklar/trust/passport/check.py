"""A published folder against its model: what a stranger who has only the folder can check.

Every file follows from the model and from `passport.json`: it is made again and compared. Texts are compared byte by
byte where this Sklar wrote them; a later one may word them otherwise, and then compares only what they state of the
model (certificate, schema) and their checksums.
"""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from sklar.errors import OutputError, SignatureError, SklarError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.files.tables import write_tables
from sklar.machine.progress import SILENT, Progress
from sklar.trust.passport import layout
from sklar.trust.passport.facts import Facts
from sklar.trust.passport.publication import Publication
from sklar.trust.passport.write import (
    BINARY,
    FORMAT,
    VERSION,
    as_json,
    content_of,
    expected,
    passport,
    sums,
    texts,
    write_rows,
)
from sklar.trust.sign import read_signature, signature_path, signer_of
from sklar.trust.verify import verify
from sklar.trust.verify.result import Check, Verification

_MAX_PASSPORT = 1 << 16
_BATCH_ROWS = 1 << 16
# Texts that a later Sklar writes as this one does: they are the model's, in a format of its own.
_FIXED = (layout.SCHEMA, layout.CERTIFICATE)


def verify_folder(
    path: str | Path, *, refit: bool = False, signer: str | None = None, progress: Progress = SILENT
) -> Verification:
    """Check a folder that `publish` wrote: its files, its checksums, its model, and each file against the model.

    `refit` fits the model again; `signer` is the fingerprint of a key, or the file of a public key, that must have
    signed the folder.
    """
    place = Path(path)
    wanted = None if signer is None else signer_of(signer)
    checks = [_attempt("files", lambda: _check_files(place))]
    if checks[-1].passed:
        checks.append(_attempt("checksums", lambda: _check_sums(place)))
    if not checks[-1].passed:
        return Verification(path=str(place), checks=tuple(checks), certificate=None)
    signature, named = _check_signatures(place, wanted)
    found = verify(place / layout.MODEL, refit=refit, progress=progress)
    # The signature of the model is one of the folder's.
    checks += [check for check in found.checks if check.name != "signature"]
    if found.passed and found.certificate is not None:
        checks += _check_content(place, progress)
    return Verification(
        path=str(place),
        checks=(*checks, *signature),
        certificate=found.certificate,
        independent_epsilon=found.independent_epsilon,
        noise=found.noise,
        signer=named,
    )


def _attempt(name: str, look: Callable[[], str]) -> Check:
    """A check that says what it compared, or why it fails."""
    try:
        return Check(name=name, passed=True, detail=look())
    except SklarError as error:
        return Check(name=name, passed=False, detail=str(error))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # Whatever a damaged file makes a reader raise, the user hears one thing.
        return Check(name=name, passed=False, detail=f"a file cannot be read ({type(error).__name__})")


def _check_files(place: Path) -> str:
    found = {each.name: each.lstat() for each in place.iterdir()}
    odd = [name for name, each in found.items() if not stat.S_ISREG(each.st_mode)]
    if odd:
        raise OutputError(f"'{odd[0]:.80}' is a link, a folder or no plain file")
    signed = signature_path(layout.SUMS).name in found
    unknown = sorted(found.keys() - expected(signed=signed))
    if unknown:
        raise OutputError(f"'{unknown[0]:.80}' is none of the files that publish writes. Remove it")
    missing = sorted(expected(signed=signed) - found.keys())
    if missing:
        raise OutputError(f"'{missing[0]}' is missing")
    return f"{len(found)} files, all of them known, and none is missing"


def _check_sums(place: Path) -> str:
    outside = {layout.SUMS, signature_path(layout.SUMS).name}
    contents = {each.name: content_of(each) for each in place.iterdir() if each.name not in outside}
    stated = place / layout.SUMS
    if stated.stat().st_size > _MAX_PASSPORT or stated.read_text(encoding="utf-8") != sums(contents):
        named = {line[66:]: line[:64] for line in _small(stated).splitlines()}
        changed = sorted(name for name, each in contents.items() if named.get(name) != each.sha256)
        raise OutputError(
            f"'{changed[0]}' is not the file that {layout.SUMS} states"
            if changed
            else f"{layout.SUMS} is not written as sha256sum writes it"
        )
    return f"the SHA-256 of {len(contents)} files are those of {layout.SUMS}"


def _small(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_PASSPORT).decode("utf-8", errors="replace")


def _check_signatures(place: Path, wanted: str | None) -> tuple[list[Check], str | None]:
    """The signatures of the model and of the checksums, which must be by one key."""
    try:
        found = [read_signature(place / name) for name in layout.SIGNED]
    except SignatureError as error:
        return [Check(name="signature", passed=False, detail=str(error))], None
    fingerprints = {each.fingerprint for each in found if each is not None}
    if not fingerprints:
        missing = Check(name="signature", passed=False, detail="the folder is not signed")
        return ([] if wanted is None else [missing]), None
    named = fingerprints.pop()
    if fingerprints:
        return [
            Check(name="signature", passed=False, detail="the model and the checksums have different signers")
        ], None
    if wanted is None:
        detail = f"by {named}; compare that with what its custodian publishes (--signer)"
    else:
        detail = f"by {named}, {'the signer that was asked for' if named == wanted else f'not the signer {wanted}'}"
    return [Check(name="signature", passed=wanted in (None, named), detail=detail)], named


def _check_content(place: Path, progress: Progress) -> list[Check]:
    """Each file against the model."""
    model = load(place / layout.MODEL)
    try:
        facts, wrote = _stated(place, model)
    except SklarError as error:
        return [Check(name="passport", passed=False, detail=str(error))]
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        return [
            _attempt("texts", lambda: _check_texts(place, facts, wrote)),
            _attempt("tables", lambda: _check_tables(place, again, model)),
            _attempt("rows", lambda: _check_rows(place, again, facts, progress)),
        ]


def _stated(place: Path, model: Model) -> tuple[Facts, str]:
    """What the passport says, and which Sklar wrote it."""
    path = place / layout.PASSPORT
    refused = OutputError(f"{layout.PASSPORT} is not one that publish wrote")
    try:
        document: Any = json.loads(_small(path)) if path.stat().st_size <= _MAX_PASSPORT else None
        rows, seed, wrote = document["rows"], document["seed"], document["sklar"]
        publication = Publication.from_dict(document["publication"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise refused from None
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise OutputError(f"{layout.PASSPORT} is of another format. Use the Sklar that wrote it")
    # A row is at least the end of its line: no more rows are drawn than the file could hold.
    size = (place / layout.ROWS_CSV).stat().st_size
    if type(rows) is not int or not 1 <= rows <= size or type(seed) is not int or not 0 <= seed < 2**64:
        raise OutputError(f"{layout.PASSPORT} must state rows and a seed of the files beside it")
    contents = {name: content_of(place / name) for name in BINARY}
    facts = Facts(model=model, rows=rows, seed=seed, publication=publication, contents=contents)
    if not isinstance(wrote, str) or as_json(passport(facts) | {"sklar": wrote}) != _small(path):
        raise refused
    return facts, wrote


def _check_texts(place: Path, facts: Facts, wrote: str) -> str:
    same = wrote == version("sklar")
    compared = {name: text for name, text in texts(facts).items() if same or name in _FIXED}
    for name, text in compared.items():
        content = text.encode()
        path = place / name
        if path.stat().st_size != len(content) or path.read_bytes() != content:
            raise OutputError(f"'{name}' is not what the model says")
    if same:
        return f"{len(compared)} texts, certificate and schema among them, are those that the model makes"
    return (
        f"certificate and schema are the model's; other texts were written by Sklar {wrote:.40} and are compared by "
        "checksum only"
    )


def _check_tables(place: Path, again: Path, model: Model) -> str:
    write_tables(model.measured, again / layout.TABLES)
    cells = _check_parquet(place / layout.TABLES, again / layout.TABLES)
    return f"{cells:,} noisy counts are those of the model"


def _check_rows(place: Path, again: Path, facts: Facts, progress: Progress) -> str:
    stated = pl.scan_parquet(place / layout.ROWS_PARQUET).select(pl.len()).collect().item()
    if stated != facts.rows:
        raise OutputError(f"'{layout.ROWS_PARQUET}' has {stated:,} rows, and {layout.PASSPORT} states {facts.rows:,}")
    for name in (layout.ROWS_PARQUET, layout.ROWS_CSV):
        write_rows(facts.model, again / name, facts.rows, facts.seed, progress)
    _check_parquet(place / layout.ROWS_PARQUET, again / layout.ROWS_PARQUET)
    if content_of(again / layout.ROWS_CSV) != facts.contents[layout.ROWS_CSV]:
        raise OutputError(f"'{layout.ROWS_CSV}' does not hold the rows that the model and seed {facts.seed} give")
    return f"{facts.rows:,} rows, drawn again from the model with seed {facts.seed}, are those of both files"


def _check_parquet(path: Path, again: Path) -> int:
    """Refuse a Parquet file with other rows than this one; bytes may differ where another polars wrote it."""
    rows = int(pl.scan_parquet(again).select(pl.len()).collect().item())
    if content_of(path) == content_of(again):
        return rows
    different = OutputError(f"'{path.name}' does not hold what the model gives")
    if pl.read_parquet_schema(path) != pl.read_parquet_schema(again):
        raise different
    both = (
        pl.scan_parquet(each).collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True) for each in (path, again)
    )
    mine, yours = (_even(each) for each in both)
    while True:
        one, two = next(mine, None), next(yours, None)
        if one is None and two is None:
            return rows
        if one is None or two is None or not one.equals(two, null_equal=True):
            raise different


def _even(frames: Any) -> Any:
    """The same rows in frames of one size: two files may be cut otherwise."""
    held = None
    for frame in frames:
        held = frame if held is None else pl.concat([held, frame])
        while len(held) >= _BATCH_ROWS:
            yield held[:_BATCH_ROWS]
            held = held[_BATCH_ROWS:]
    if held is not None and len(held):
        yield held
