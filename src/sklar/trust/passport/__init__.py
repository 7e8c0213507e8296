"""A release as a folder that can be put online as it is, and the check of such a folder as a stranger would make it.

Every file follows from the model and from `passport.json` (how many rows, the seed, the publisher, whether the model
was recomputed): to check, it is made again and compared, byte by byte. Where another version of Sklar or of its writer
of Parquet would make other bytes, what they hold beside the rows was not checked: such a folder has not failed, and is
not verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from sklar.answer.report.render import render
from sklar.draw.sample import check_draw
from sklar.errors import ModelError, OutputError, SklarError
from sklar.files.archive import load, wrote
from sklar.files.model import Model, TreeModel
from sklar.files.tables import write_tables
from sklar.files.write import write_text
from sklar.machine.progress import SILENT, Progress
from sklar.machine.stores import require_apart
from sklar.machine.wording import failing, said
from sklar.trust.passport import facts, prose
from sklar.trust.passport.facts import Content, Facts, Publication
from sklar.trust.sign import private_key, sign_file, signature_path, signer_of
from sklar.trust.verify import Check, Verification, attempt, judge, signature_checks, verify

__all__ = ["Publication", "Published", "publish", "verify_folder"]

_FORMAT = {"format": "sklar-passport", "version": 1}
_MAX_PASSPORT, _REPORT = 1 << 16, "sklar.answer.report"
_BATCH_ROWS = 1 << 18
_OTHER_BYTES = "but the Parquet file is not the one that this machine writes: what else it holds was not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A folder that was written: where, with how many rows drawn by which seed, its files, and who signed it.

    `recomputed` says whether a refit of the model's tables gave the model.
    """

    folder: Path
    rows: int
    seed: int
    files: tuple[str, ...]
    recomputed: bool
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
    refit: bool = True,
    progress: Progress = SILENT,
) -> Published:
    """Write the folder `out` from a model file alone. Costs no privacy.

    `rows` are as many as the original has unless told otherwise. `key` is the key file to sign with. An existing folder
    is refused, but for one without a signature that the same call wrote; with `replace` any that `publish` wrote is
    replaced. So is a model that contradicts its certificate, or, unless `refit` is false, which the folder then says,
    one that does not follow from its tables.
    """
    path, folder = Path(model), Path(out)
    rows, seed = check_draw(rows, seed)
    replace = replace or _is_again(folder, path, seed, publication or Publication())
    _check_place(folder, replace=replace)
    require_apart(folder, path, key)
    if key is not None:
        private_key(Path(key))
    loaded = load(path)
    progress.stage("verify")
    checks = verify(path, refit=refit, progress=progress).checks
    for check in checks:
        if check.passed is False and check.name != "signature":
            raise ModelError(said("trust.contradicted", path=path, check=check))
    recomputed = any(check.passed and check.name == "refit" for check in checks)
    rows, signer = loaded.n_rows if rows is None else rows, None
    with _building(folder, replace=replace) as place:
        shutil.copyfile(path, place / facts.MODEL)
        _write_rows(loaded, place, rows, seed, progress)
        progress.stage("describe")
        write_tables(loaded.measured, place / facts.TABLES)
        about = Facts(loaded, rows, seed, publication or Publication(), _contents(place, facts.data_of(loaded)))
        about.recomputed = recomputed
        for name, text in _texts(about).items():
            write_text(place / name, text)
        if key is not None:
            signer = sign_file(place / facts.MODEL, key)[1].fingerprint
        write_text(place / facts.SUMS, sums(_contents(place, _names(place))))
        if key is not None:
            sign_file(place / facts.SUMS, key)
        files = tuple(sorted(_names(place)))
    return Published(folder=folder, rows=rows, seed=seed, files=files, recomputed=recomputed, signer=signer)


def _write_rows(model: Model, place: Path, rows: int, seed: int, progress: Progress) -> None:
    """Draw rows into all files, the same ones whenever it is done."""
    from threadpoolctl import threadpool_limits

    # The last bits of a product of matrices depend on how many threads it has, and rows depend on that.
    with threadpool_limits(1, user_api="blas"):
        for kind, names in facts.rows_of(model).items():
            if isinstance(model, TreeModel):
                model.write(place, rows, seed=seed, kind=kind, progress=progress)
            else:
                model.write(place / names[0], rows, seed=seed, progress=progress)


def _texts(about: Facts) -> dict[str, str]:
    """Every text file of the folder but its list of checksums, by name."""
    texts = {
        facts.SYNTHETIC: prose.filled("SYNTHETIC.txt.j2", about),
        "README.md": prose.readme(about),
        facts.REPORT: render(_REPORT, "publishable.html.j2", about.shown),
        facts.SCHEMA: about.model.measured.known.to_toml(),
        facts.CERTIFICATE: _json(about.model.certificate.to_dict()),
        facts.PASSPORT: _passport(about, version("sklar")),
        **{name: _json(prose.described(about, f"{name}.j2")) for name in facts.DESCRIPTIONS},
        "opendp_registry.yaml": facts.WORDS["registry"]["head"]
        + prose.yaml(prose.described(about, "opendp_registry.json.j2")),
        "nist_sp_800_226.md": prose.filled("checklist.md.j2", about, domains=prose.domains(about.model.schema)),
    }
    sizes = {name: content.size for name, content in about.contents.items()}
    sizes |= {name: len(text.encode()) for name, text in texts.items()}
    shown = about.shown | {"sizes": sizes, "dataset": prose.described(about, "dataset.json.j2")}
    return texts | {facts.INDEX: prose.filled("index.html.j2", about, **shown)}


def _passport(about: Facts, wrote: str) -> str:
    """How the folder was made: all that it does not take from the model."""
    made = {"sklar": wrote, "rows": about.rows, "seed": about.seed, "publication": asdict(about.publication)}
    return _json({**_FORMAT, **made, "recomputed": about.recomputed, "files": about.files})


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sums(contents: Mapping[str, Content]) -> str:
    """Checksums as sha256sum writes and checks them."""
    return "".join(f"{contents[name].sha256}  {name}\n" for name in sorted(contents))


def _names(place: Path) -> set[str]:
    return {each.name for each in place.iterdir()}


def _contents(place: Path, names: Iterable[str]) -> dict[str, Content]:
    return {name: content_of(place / name) for name in names}


def content_of(path: Path) -> Content:
    """The size and the SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Content(size=file.tell(), sha256=digest)


def _is_again(folder: Path, model: Path, seed: int, publication: Publication) -> bool:
    """Whether the same call wrote this folder, without a signature, from a model that the same command fitted."""
    with suppress(OSError, ValueError, SklarError, LookupError):
        made, own = json.loads((folder / facts.PASSPORT).read_text(encoding="utf-8")), load(model)
        same = (made["seed"], made["publication"]) == (seed, asdict(publication))
        of = own.measured.known, own.certificate.budget, own.method
        return same and not signature_path(folder / facts.SUMS).exists() and wrote(folder / facts.MODEL, *of)
    return False


def _check_place(folder: Path, *, replace: bool) -> None:
    """Refuse, before any work is done, a place where the folder cannot go."""
    filled, ours = folder.is_dir() and any(folder.iterdir()), (folder / facts.PASSPORT).is_file()
    refused = {
        "nameless": not folder.name,
        "nowhere": not folder.parent.is_dir(),
        "unwritable": not os.access(folder.parent, os.W_OK),
        "no_folder": folder.is_symlink() or (folder.exists() and not folder.is_dir()),
        "not_ours": filled and not ours,
        "released": filled and not replace,
    }
    for why in (why for why, so in refused.items() if so):
        raise OutputError(said(f"trust.{why}", folder=folder))


@contextmanager
def _building(folder: Path, *, replace: bool) -> Iterator[Path]:
    """A new folder beside its place, which takes its name when the block ends well, and vanishes when it does not."""
    token = secrets.token_hex(8)
    place, old = (folder.with_name(f".{folder.name}.{token}.{end}") for end in ("part", "old"))
    unwritten = f"the folder '{folder}' could not be written: {{why}}. Nothing was left behind."
    try:
        with failing(OutputError, unwritten, OSError):
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
    expected = None if signer is None else signer_of(signer)
    checks = [_attempt("files", _check_files, place)]
    if checks[-1].passed:
        checks.append(_attempt("checksums", _check_sums, place))
    if not checks[-1].passed:
        return Verification(path=str(place), checks=tuple(checks), certificate=None)
    signature, named = signature_checks([place / name for name in facts.SIGNED], expected, "the folder is not signed")
    verified = verify(place / facts.MODEL, refit=refit, progress=progress)
    # The signature of the model is one of the folder's.
    checks += [check for check in verified.checks if check.name != "signature"]
    if verified.passed and verified.certificate is not None:
        try:
            about, wrote = _read_passport(place)
        except SklarError as error:
            checks.append(judge("passport", wrong=str(error)))
        else:
            with tempfile.TemporaryDirectory() as again:
                made = [
                    _attempt("texts", _check_texts, place, about, wrote),
                    _attempt("tables", _check_tables, place, Path(again), about.model),
                    _attempt("rows", _check_rows, place, Path(again), about, progress),
                ]
            if wrote is not None:
                # What this version would not write may be what that one wrote, or anything.
                by = f"not checked, since Sklar {wrote:.40} wrote it"
                open_ = [Check(each.name, None, f"{by}: {each.detail}") for each in made if each.passed is False]
                claim = _attempt("claim", _check_claim, place, about)
                made = [claim, *(each for each in made if each.passed is not False), *open_]
            checks += made
    return replace(verified, path=str(place), checks=(*checks, *signature), signer=named)


def _attempt(name: str, compare: Callable[..., str | Check], *arguments: Any) -> Check:
    """A check that says what it compared, or why it fails."""
    try:
        return attempt(name, compare, *arguments)
    except (ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # One clear error, whatever a damaged file makes a reader raise.
        return judge(name, wrong=f"a file cannot be read ({type(error).__name__})")


def _check_files(place: Path) -> str:
    present = {each.name: each.lstat() for each in place.iterdir()}
    signatures = [signature_path(name).name for name in facts.SIGNED]
    own = facts.FILES
    with suppress(SklarError):
        # Whatever is no model lacks its files, or fails later.
        own = facts.files_of(load(place / facts.MODEL))
    expected = {*own, *(signatures if signatures[-1] in present else [])}
    if odd := [name for name, each in present.items() if not stat.S_ISREG(each.st_mode)]:
        raise OutputError(f"'{odd[0]:.80}' is a link, a folder or no plain file")
    if unknown := sorted(present.keys() - expected):
        raise OutputError(f"'{unknown[0]:.80}' is none of the files that publish writes. Remove it")
    if missing := sorted(expected - present.keys()):
        raise OutputError(f"'{missing[0]}' is missing")
    return f"{len(present)} files, all of them known, and none is missing"


def _check_sums(place: Path) -> str:
    contents = _contents(place, _names(place) - {facts.SUMS, signature_path(facts.SUMS).name})
    listed = _small(place / facts.SUMS)
    if listed != sums(contents):
        named = {line[66:]: line[:64] for line in listed.splitlines()}
        if changed := sorted(name for name, each in contents.items() if named.get(name) != each.sha256):
            raise OutputError(f"'{changed[0]}' is not the file that {facts.SUMS} states")
        raise OutputError(f"{facts.SUMS} is not written as sha256sum writes it")
    return f"the SHA-256 of {len(contents)} files are those of {facts.SUMS}"


def _small(path: Path) -> str:
    """The text of a small file; of a larger one its beginning, which is never what is expected."""
    with path.open("rb") as file:
        return file.read(_MAX_PASSPORT + 1).decode("utf-8", errors="replace")


def _read_passport(place: Path) -> tuple[Facts, str | None]:
    """What the passport says, and which other version of Sklar wrote it, if one did."""
    name, text = facts.PASSPORT, _small(place / facts.PASSPORT)
    refused = f"{name} is not one that publish wrote"
    with failing(OutputError, refused, (ValueError, TypeError, KeyError, AttributeError, RecursionError)):
        document: Any = json.loads(text)
        rows, seed, wrote = document["rows"], document["seed"], document["sklar"]
        publication = Publication(**document["publication"])
    if {key: document.get(key) for key in _FORMAT} != _FORMAT:
        raise OutputError(f"{name} is of another format. Use the Sklar that wrote it")
    # A row is at least the end of its line: no more rows are drawn than the file could hold.
    model = load(place / facts.MODEL)
    size = (place / facts.rows_of(model)["csv"][0]).stat().st_size
    if type(rows) is not int or not 1 <= rows <= size or type(seed) is not int or not 0 <= seed < 2**64:
        raise OutputError(f"{name} must state rows and a seed of the files beside it")
    about = Facts(model, rows, seed, publication, _contents(place, facts.data_of(model)))
    about.recomputed = bool(document.get("recomputed"))
    same = wrote == version("sklar")
    if not isinstance(wrote, str) or (same and _passport(about, wrote) != text):
        raise OutputError(refused)
    return about, None if same else wrote


def _check_claim(place: Path, about: Facts) -> str:
    """The certificate of another version, which may say it in other words: what it claims is the model's claim."""
    stated, claimed = about.model.certificate.to_dict(), json.loads(_small(place / facts.CERTIFICATE))
    for name in ("epsilon", "delta", "neighbors", "mechanism", "schema_sha256"):
        if not isinstance(claimed, dict) or claimed.get(name) != stated[name]:
            raise OutputError(f"'{facts.CERTIFICATE}' states another {name} than the model")
    return f"{facts.CERTIFICATE} claims what the model does"


def _check_texts(place: Path, about: Facts, wrote: str | None) -> str | Check:
    if wrote is not None:
        words = f"no text of Sklar {wrote:.40} is compared with the model: they may say anything"
        return Check("texts", None, f"not checked: {words}")
    texts = _texts(about)
    for name, text in texts.items():
        content, path = text.encode(), place / name
        if path.stat().st_size != len(content) or path.read_bytes() != content:
            raise OutputError(f"'{name}' is not what the model says")
    return f"{len(texts)} texts, certificate and schema among them, are those that the model makes"


def _check_tables(place: Path, again: Path, model: Model) -> str | Check:
    write_tables(model.measured, again / facts.TABLES)
    held = f"{_height(again / facts.TABLES):,} noisy counts are those of the model"
    same = _check_parquet(place / facts.TABLES, again / facts.TABLES)
    return held if same else Check("tables", None, f"{held}, {_OTHER_BYTES}")


def _check_rows(place: Path, again: Path, about: Facts, progress: Progress) -> str | Check:
    first, second = facts.rows_of(about.model).values()
    stated = _height(place / first[0])
    if stated != about.rows:
        raise OutputError(f"'{first[0]}' has {stated:,} rows, and {facts.PASSPORT} states {about.rows:,}")
    _write_rows(about.model, again, about.rows, about.seed, progress)
    same = [_check_parquet(place / name, again / name) for name in first]
    for name in second:
        if content_of(again / name) != about.contents[name]:
            raise OutputError(f"'{name}' does not hold the rows that the model and seed {about.seed} give")
    files = "both" if len(first) == 1 else f"all {2 * len(first)}"
    held = f"{about.rows:,} rows, drawn again from the model with seed {about.seed}, are those of {files} files"
    return held if all(same) else Check("rows", None, f"{held}, {_OTHER_BYTES}")


def _height(path: Path) -> int:
    return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def _check_parquet(path: Path, again: Path) -> bool:
    """Whether a Parquet file has the bytes of this one; one with other rows or other metadata is refused."""
    rows = _height(again)
    if content_of(path) == content_of(again):
        return True
    if pl.read_parquet_metadata(path) != pl.read_parquet_metadata(again):
        raise OutputError(f"'{path.name}' has metadata that publish does not write")
    same = pl.read_parquet_schema(path) == pl.read_parquet_schema(again) and _height(path) == rows
    # In slices, to bound memory.
    for start in range(0, rows if same else 0, _BATCH_ROWS):
        one, other = (pl.scan_parquet(each).slice(start, _BATCH_ROWS).collect() for each in (path, again))
        same = same and one.equals(other, null_equal=True)
    if not same:
        raise OutputError(f"'{path.name}' does not hold what the model gives")
    return False
