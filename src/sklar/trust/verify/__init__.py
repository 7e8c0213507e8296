"""A model file against its certificate: what a stranger who has only the file can check.

What this cannot show: that noise which looks right was drawn by chance. A forger who knows what was added can take it
off again. For that, see `audit`, the code, and who signed the file (`trust.sign`).
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from sklar.budget.certificate import Certificate, rounded_up
from sklar.budget.search import asked_of, ladder_of, next_cells
from sklar.errors import ModelError, SignatureError, SklarError
from sklar.files.archive import arrays_of, describe, load, member
from sklar.files.model import Model
from sklar.fitting.density import searched
from sklar.kernel.queries import Tables
from sklar.kernel.theorems import Mechanism
from sklar.machine.notebook import Tabular, html_card
from sklar.machine.progress import SILENT, Progress
from sklar.machine.wording import stated
from sklar.public.description import open_model, written
from sklar.trust.sign import read_signature, signature_path, signer_of
from sklar.trust.verify import residuals
from sklar.trust.verify.claims import Check, attempt, check_claims, check_totals, judge, printable

__all__ = ["VERDICTS", "Check", "Verification", "attempt", "judge", "signature_checks", "verify", "verify_model"]

_MARKS = {True: "ok  ", False: "FAIL", None: "--  "}
# What every verdict is called, with the exit code of `sklar verify`. "Tables verified": nobody asked for a refit.
VERDICTS = {"verified": 0, "tables verified": 0, "failed": 1, "not verified": 3}
_MODEL = "model"
# What is said of a file beside its checks.
_WORDS: dict[str, Any] = stated("sklar.trust.verify", "words.toml")
# Where only noise of less than this share of what is stated would be found, it counts as not tested.
_LEAST_SHARE = 0.1
# signature; created by (version, system); needed version; flags; method; time, date; checksum, sizes; lengths of name,
# extra field and comment; disk; attributes inside and outside; place of the member.
_ENTRY = struct.Struct("<4sBBHHHHH3L5HLL")
_END = struct.Struct("<4s4HLLH")
# Packed bytes: they may unpack to a thousand times as many.
_AT_ONCE = 1 << 14
# Beyond, a zip has fields of other lengths.
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Tabular):
    """All that was looked at in one model file."""

    path: str
    checks: tuple[Check, ...]
    certificate: Certificate | None
    independent_epsilon: float | None = None
    noise: tuple[residuals.NoiseTest, ...] = ()
    untested: tuple[str, ...] = ()
    signer: str | None = None

    def __repr__(self) -> str:
        return f"Verification({self.path}: {self.verdict}{self._named(passed=False)}, {len(self.checks)} checks)"

    def _repr_html_(self) -> str:
        return html_card(f"Verification of {self.path}", {"verdict": self.verdict}, self.to_columns())

    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """One line for each thing that was looked at."""
        return {name: [getattr(check, name) for check in self.checks] for name in ("name", "passed", "detail")}

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the certificate. What was not checked does not: see `verdict`."""
        return all(check.passed is not False for check in self.checks)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`: "not verified" where nothing failed, but something that was asked for was not checked."""
        if not self.passed:
            return "failed"
        left = {check.name for check in self.checks if check.passed is None}
        return "not verified" if left - {_MODEL} else "tables verified" if left else "verified"

    @property
    def exit_code(self) -> int:
        """That of `sklar verify`."""
        return VERDICTS[self.verdict]

    def _named(self, *, passed: bool | None) -> str:
        names = (check.name for check in self.checks if check.passed is passed)
        return "".join(f"{', ' if number else ' in '}{name}" for number, name in enumerate(dict.fromkeys(names)))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        said = {"path": self.path, "passed": self.passed, "verdict": self.verdict}
        stated = None if self.certificate is None else self.certificate.to_dict()
        return said | asdict(replace(self, certificate=None)) | {"certificate": stated}

    def lines(self) -> list[str]:
        """For a person."""
        lines = [*(f"{_MARKS[check.passed]} {check.name}: {check.detail}" for check in self.checks), ""]
        stated = self.certificate
        if not self.passed or stated is None:
            return [*lines, f"{self.path} fails{self._named(passed=False)}. Do not rely on its privacy claim."]
        state = {check.name: check.passed for check in self.checks}
        unit = "linked" if stated.tokens is not None else "row" if stated.count is None else "person"
        shown = {
            "of": self,
            "epsilon": rounded_up(stated.epsilon, 4),
            "delta": rounded_up(stated.delta, 3),
            "odds": rounded_up(math.exp(min(stated.epsilon, 700.0)), 4),
            "whom": _WORDS[unit][stated.neighbors],
            "untested": printable("; ".join(self.untested)),
            "earlier": printable(", ".join(f"'{name}'" for name in stated.earlier)),
            "open": self._named(passed=None),
        }
        told = {
            "agrees": True,
            "untested": self.untested,
            "earlier": stated.earlier,
            "not recomputed": not state.get("refit"),
            "not verified": self.verdict == "not verified",
            "signed": self.signer is not None,
            "unsigned": self.signer is None,
        }
        shown |= _WORDS[unit] | _WORDS["tested" if state.get("noise") else "not tested"]
        shown |= _WORDS["recomputed" if state.get("refit") else "tables alone"]
        return lines + [line for name, so in told.items() if so for line in _WORDS[name].format(**shown).splitlines()]


def verify(
    path: Model | str | Path, *, refit: bool = False, signer: str | None = None, progress: Progress = SILENT
) -> Verification:
    """Check a model file; a file that cannot be read as a model fails too. A model in memory is checked as its file.

    `refit` fits the model again to the tables of the file, which takes as long as the release did. `signer` is the
    fingerprint of a key, or the file of a public key, that must have signed the file.
    """
    if isinstance(path, Model):
        with TemporaryDirectory() as folder:
            path.save(held := Path(folder, "model.sklar"))
            result = verify(held, refit=refit, signer=signer, progress=progress)
            return replace(result, path=f"the model of '{path.schema.name}'")
    if not Path(path).is_file():
        raise ModelError(f"'{path}' is missing: there is no such file. Name a model file, or a folder of publish.")
    try:
        model = load(path)
    except SklarError as error:
        return Verification(path=str(path), checks=(judge("format", wrong=str(error)),), certificate=None)
    result = verify_model(model, str(path))
    checks = (result.checks[0], attempt("layout", _check_layout, Path(path), model), *result.checks[1:])
    if not refit or any(check.passed is False for check in checks):
        checks = (*checks, Check(_MODEL, None, "not recomputed (--refit)"))
    else:
        # Fits load compiled code, which a plain check does without.
        from sklar.trust.verify.refit import refit_checks

        checks = (*checks, *refit_checks(model, progress))
    expected = None if signer is None else signer_of(signer)
    signature, named = signature_checks([Path(path)], expected, f"there is none in {signature_path(path)}")
    return replace(result, checks=(*checks, *signature), signer=named)


def signature_checks(paths: Sequence[Path], expected: str | None, missing: str) -> tuple[list[Check], str | None]:
    """The signatures beside these files, all by one key, and whose it is; no check where none is there or expected."""
    try:
        signers = {each.fingerprint for each in map(read_signature, paths) if each is not None}
    except SignatureError as error:
        return [judge("signature", wrong=str(error))], None
    if len(signers) > 1:
        return [judge("signature", wrong="the model and the checksums have different signers")], None
    if not signers:
        return [] if expected is None else [judge("signature", wrong=missing)], None
    (signer,) = signers
    known = ", the signer that was asked for"
    detail = known if expected else "; compare that with what its custodian publishes (--signer)"
    other = "" if expected in (None, signer) else f"by {signer}, not the signer {expected}"
    return [judge("signature", f"by {signer}{detail}", other)], signer


def verify_model(model: Model, name: str = "the model") -> Verification:
    """Check a loaded model."""
    checks, stated = check_claims(model), model.certificate
    result = Verification(path=name, checks=tuple(checks), certificate=stated)
    if not result.passed:
        return result
    independent: float | None = None
    try:
        independent, totals = check_totals(model)
    except SklarError as error:
        totals = [judge("theorem", wrong=str(error))]
    blocks, (grids, untested), n = model.measured.blocks, _grids(model), stated.public_rows
    sides, unseen = residuals.examine_sides(model.measured)
    # In tokens, where people have some.
    known = None if n is None else n * (stated.tokens or 1)
    tests = [*residuals.examine(blocks, model.measured_schema, stated.mechanism, known, grids), *sides]
    untested = [*residuals.unseen(blocks), *unseen, *untested]
    noise, few = _noise(tests, stated.mechanism)
    checks += [*totals, *noise]
    found = replace(result, checks=tuple(checks), independent_epsilon=independent)
    return replace(found, noise=tuple(tests), untested=(*few, *untested))


def _grids(model: Model) -> tuple[list[residuals.Grid], list[str]]:
    """The tables of the searches for numbers, where the file holds them, and the searches that are seen but once."""
    grids, once = [], []
    for finding, blocks in searched(model.certificate.domains, model.measured.blocks):
        name = finding.attribute
        if finding.of == "domain" and isinstance(blocks[0].query, Tables) and len(blocks) > 1:
            tables = tuple(block.values for block in blocks)
            ladder = ladder_of(asked_of(finding, model.schema.attribute(name)))
            edges = next_cells(ladder, tables, finding.scale)[: len(tables)]
            grids.append(residuals.Grid(tables=tables, edges=tuple(edges), scale=finding.scale))
        elif finding.threshold is None:
            what = "how it is rounded" if finding.of == "rounding" else "its bins"
            once.append(f"the noisy table of '{name}': {what}")
        else:
            once.append(f"counts of the categories found for '{name}'")
    return grids, once


def _noise(tests: Sequence[residuals.NoiseTest], mechanism: Mechanism) -> tuple[list[Check], list[str]]:
    """What the tests found, and what they were too few or too small for: exact counts would pass there."""
    if failed := [test for test in tests if not test.passed]:
        seen = "{0.name}: {0.seen}; genuine noise looks so with a chance of {0.chance:.1g}"
        return [judge("noise", wrong=seen.format(test)) for test in failed], []
    told, few = [], []
    for test in tests:
        if test.name in (residuals.ALL, residuals.SIDES_TOGETHER):
            share = residuals.visible(test.freedom, mechanism, test.chosen, test.hidden)
            below = f"noise below {share:.0%} of what is stated, if all of it is too small, would be found"
            told += [f"{test.seen}: {below} {residuals.POWER:.0%} of the time"] if share > _LEAST_SHARE else []
            what = "counts that are seen twice" if test.name == residuals.ALL else test.name
            few += [] if share > _LEAST_SHARE else [f"{what}: too few of them, or too little noise"]
    if not told:
        why = "too few tables show the same counts twice, or their noise is too small: exact counts would pass"
        return [Check("noise", None, f"not tested: {why}")], few
    rare = f"less than once in {1 / residuals.FALSE_ALARM:,.0f}"
    return [judge("noise", f"{'; '.join(told)}; {len(tests)} tests that fail a genuine file {rare}")], few


def _check_layout(path: Path, model: Model) -> str:
    """Compare the file byte by byte with what `files.archive.save` writes; raise where one is not as it must be.

    A zip can hold bytes that no reader shows: before the first member, between members, behind the last, in extra
    fields and comments, behind the end of a packed stream. JSON can say the same in many ways. Only the choices of the
    compressor, which may differ by its version, are left open.
    """
    with open_model(path) as (archive, _):
        text = archive.read("model.json")
        found = {each.filename: each for each in archive.infolist()}
    if written(describe(model)) != text:
        raise ModelError("its description is not written as Sklar writes it.")
    size = path.stat().st_size
    # Python's writer allows for packing that makes a member a twentieth longer.
    if max(size, *(1.05 * each.file_size for each in found.values())) > _LARGEST:
        return "the description is written in the one way that there is; a file of this size is not compared further"
    with path.open("rb") as file:
        names = ("model.json", *(f"{name}.npy" for name in arrays_of(model)))
        entries = b"".join(_check_member(file, name, found[name]) for name in names)
        start = file.tell()
        if file.read(len(entries)) != entries:
            raise ModelError("the list of its members is not as Sklar writes it.")
        end = _END.pack(b"PK\5\6", 0, 0, len(found), len(found), len(entries), start, 0)
        if file.read() != end:
            raise ModelError("something stands behind its members.")
    return f"{size:,} bytes, all of them where and as Sklar writes them"


def _check_member(file: IO[bytes], name: str, info: zipfile.ZipInfo) -> bytes:
    """Its entry in the list of members, when it stands here as it must."""
    place, wanted = file.tell(), member(name)
    wanted.CRC, wanted.compress_size, wanted.file_size = info.CRC, info.compress_size, info.file_size
    # What Python's writer sets when it begins a member.
    wanted.external_attr = 0o600 << 16
    header = wanted.FileHeader(zip64=False)
    if file.read(len(header)) != header:
        raise ModelError(f"its member '{name}' does not stand where and as Sklar writes it.")
    stream = zlib.decompressobj(-15) if wanted.compress_type == zipfile.ZIP_DEFLATED else None
    left, unpacked = info.compress_size, 0
    while left:
        part = file.read(min(left, _AT_ONCE))
        if not part:
            raise ModelError(f"its member '{name}' ends too early.")
        left -= len(part)
        if stream is not None:
            unpacked += len(stream.decompress(part))
            if stream.unused_data or (stream.eof and left) or unpacked > info.file_size:
                raise ModelError(f"something stands behind the content of its member '{name}'.")
    if stream is not None and (not stream.eof or unpacked != info.file_size):
        raise ModelError(f"its member '{name}' does not end where it must.")
    # Files written on Windows name that system.
    system = info.create_system if info.create_system in (0, 3) else 3
    return _ENTRY.pack(
        b"PK\1\2", 20, system, 20, 0, wanted.compress_type, 0, 33, info.CRC, info.compress_size, info.file_size,
        len(name), 0, 0, 0, 0, wanted.external_attr, place,
    ) + name.encode()  # fmt: skip
