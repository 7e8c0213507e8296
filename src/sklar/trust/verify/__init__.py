"""A model file against its certificate: what a stranger who has only the file can check.

- `layout`: every byte is one that Sklar writes; nothing else is in the file.
- `claims`: what the tables cost, recomputed by another path, is no more than what the certificate states.
- `noise`: the tables hold the noise that they state, since the same counts are seen many times.
- `refit`: the copula follows from the tables.

What this cannot show: that noise which looks right was drawn by chance. A forger who knows what was added can take it
off again. For that, see `audit`, the code, and who signed the file (`trust.sign`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sklar.budget.ladder import ladder_of, next_cells
from sklar.budget.search import asked_of
from sklar.errors import SignatureError, SklarError
from sklar.files.archive import is_linked, load
from sklar.files.model import Model
from sklar.machine.progress import SILENT, Progress
from sklar.trust.sign import read_signature, signature_path, signer_of
from sklar.trust.verify.claims import (
    check_arrays,
    check_domains,
    check_measurements,
    check_rows,
    check_schema,
    check_settings,
    check_totals,
    check_unit,
)
from sklar.trust.verify.layout import check_layout
from sklar.trust.verify.noise import ALL, FALSE_ALARM, LEAST_SCALE, POWER, Grid, NoiseTest, examine, visible
from sklar.trust.verify.result import Check, Verification
from sklar.trust.verify.threes import examine_triples

__all__ = ["Check", "Verification", "signature_checks", "verify", "verify_model"]

_FORMAT = Check(name="format", passed=True, detail="members, keys, types and sizes are those of a model and no other")


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
            found = verify(held, refit=refit, signer=signer, progress=progress)
            return replace(found, path=f"the model of '{path.schema.name}'")
    if is_linked(path):
        # Imported here: most files are of one table.
        from sklar.trust.verify.linked import verify_linked

        found = verify_linked(path, refit=refit, progress=progress)
        signature, named = _signature(path, signer)
        return replace(found, checks=(*found.checks, *signature), signer=named)
    try:
        model = load(path)
    except SklarError as error:
        failed = Check(name="format", passed=False, detail=str(error))
        return Verification(path=str(path), checks=(failed,), certificate=None)
    try:
        layout = Check(name="layout", passed=True, detail=check_layout(Path(path), model))
    except (SklarError, OSError) as error:
        layout = Check(name="layout", passed=False, detail=str(error))
    found = verify_model(model, str(path))
    checks = (found.checks[0], layout, *found.checks[1:])
    if refit and all(check.passed for check in checks):
        # Fits load compiled code, which a plain check does without.
        from sklar.trust.verify.refit import check_copula, check_plan

        plan = () if model.certificate.claimed_by else (check_plan(model),)
        checks = (*checks, *plan, check_copula(model, progress))
    signature, named = _signature(path, signer)
    return replace(found, checks=(*checks, *signature), signer=named)


def _signature(path: str | Path, signer: str | None) -> tuple[list[Check], str | None]:
    wanted = None if signer is None else signer_of(signer)
    return signature_checks([Path(path)], wanted, f"there is none in {signature_path(path)}")


def signature_checks(paths: Sequence[Path], wanted: str | None, missing: str) -> tuple[list[Check], str | None]:
    """The signatures beside these files, all by one key, and whose it is; no check where none is there or wanted."""
    try:
        signers = {each.fingerprint for each in map(read_signature, paths) if each is not None}
    except SignatureError as error:
        return [Check(name="signature", passed=False, detail=str(error))], None
    if len(signers) != 1:
        detail = "the model and the checksums have different signers" if signers else missing
        return [Check(name="signature", passed=False, detail=detail)] if signers or wanted is not None else [], None
    (signer,) = signers
    detail = f"by {signer}; compare that with what its custodian publishes (--signer)"
    if wanted is not None:
        detail = f"by {signer}, {'the signer that was asked for' if signer == wanted else f'not the signer {wanted}'}"
    return [Check(name="signature", passed=wanted in (None, signer), detail=detail)], signer


def verify_model(model: Model, name: str = "the model") -> Verification:
    """Check a loaded model."""
    stated = model.certificate
    if stated.claimed_by is not None:
        return _verify_claimed(model, name)
    checks = [_FORMAT, check_schema(model), check_settings(stated)]
    if not checks[-1].passed:
        return Verification(path=name, checks=tuple(checks), certificate=stated)
    checks += [
        check_unit(model),
        check_rows(model),
        check_measurements(model),
        check_arrays(model),
        check_domains(model),
    ]
    independent: float | None = None
    tests: list[NoiseTest] = []
    if all(check.passed for check in checks):
        try:
            independent, totals = check_totals(model)
        except SklarError as error:
            totals = [Check(name="theorem", passed=False, detail=str(error))]
        tests = examine(model.measured.stages, model.measured_schema, _grids(model))
        if tests:
            tests += examine_triples(model.measured.stages, model.measured.triples, model.measured_schema)
        checks += [*totals, *_noise(model, tests)]
    return Verification(
        path=name, checks=tuple(checks), certificate=stated, independent_epsilon=independent, noise=tuple(tests)
    )


def _grids(model: Model) -> list[Grid]:
    """The tables of the searches for numbers, where the file holds them."""
    found = []
    for finding, answer in zip(model.certificate.domains, model.measured.answers, strict=False):
        if not isinstance(answer, Mapping) and finding.of == "domain":
            ladder = ladder_of(asked_of(finding, model.schema.attribute(finding.attribute)))
            edges = next_cells(ladder, answer, finding.scale)[: len(answer)]
            found.append(Grid(tables=answer, edges=tuple(edges), scale=finding.scale))
    return found


def _noise(model: Model, tests: list[NoiseTest]) -> list[Check]:
    if not tests:
        detail = f"not tested: some of it is stated below scale {LEAST_SCALE:g}, where an epsilon promises little"
        return [Check(name="noise", passed=True, detail=detail)]
    failed = [test for test in tests if not test.passed]
    if failed:
        return [
            Check(
                name="noise",
                passed=False,
                detail=f"{test.name}: {test.seen}; genuine noise looks so with a chance of {test.chance:.1g}",
            )
            for test in failed
        ]
    together = next((test for test in tests if test.name == ALL), None)
    share = 0.0 if together is None else visible(together.freedom, model.certificate.mechanism, together.chosen)
    power = (
        f"noise below {share:.0%} of what is stated would be found {POWER:.0%} of the time"
        if share > 0.1
        else "too few tables to find any but the plainest forgery"
    )
    seen = "" if together is None else f"{together.seen}; "
    detail = f"{seen}{len(tests)} tests that fail a genuine file less than once in {1 / FALSE_ALARM:,.0f}; {power}"
    return [Check(name="noise", passed=True, detail=detail)]


def _verify_claimed(model: Model, name: str) -> Verification:
    """Check a model of tables that Sklar did not measure: only that its parts agree."""
    stated = model.certificate
    checks = (
        _FORMAT,
        check_schema(model),
        check_measurements(model),
        check_arrays(model),
        Check(
            name="privacy",
            passed=True,
            detail=f"claimed by the caller, not checked: epsilon {stated.epsilon:.6g} at delta "
            f"{stated.delta:.3g}, {stated.neighbors} neighbors, {stated.mechanism} noise, measured by "
            f"'{stated.claimed_by}'",
        ),
    )
    return Verification(path=name, checks=checks, certificate=stated)
