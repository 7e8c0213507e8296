"""A model file against its certificate: what a stranger who has only the file can check.

What this cannot show: that noise which looks right was drawn by chance. A forger who knows what was added can take it
off again. For that, see `audit`, the code, and who signed the file (`trust.sign`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sklar.budget.search import asked_of, ladder_of, next_cells
from sklar.errors import SignatureError, SklarError
from sklar.files.archive import is_linked, load, load_linked
from sklar.files.model import LinkedModel, Model
from sklar.kernel.queries import Block, Shares, Tables
from sklar.machine.progress import SILENT, Progress
from sklar.trust.sign import read_signature, signature_path, signer_of
from sklar.trust.verify.claims import check_linked, check_model, check_totals, search_blocks
from sklar.trust.verify.layout import check_layout
from sklar.trust.verify.residuals import ALL, FALSE_ALARM, LEAST_SCALE, POWER, Grid, NoiseTest, examine, visible
from sklar.trust.verify.result import Check, Verification, judge

__all__ = ["Check", "Verification", "judge", "signature_checks", "verify", "verify_model"]

# Of linked tables, those of people alone: counts, as those of any model.
_OF_PEOPLE = {"people": 0, "person": 1, "person-person": 2}


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
    try:
        model = load_linked(path) if is_linked(path) else load(path)
    except SklarError as error:
        return Verification(path=str(path), checks=(judge("format", wrong=str(error)),), certificate=None)
    try:
        layout = judge("layout", check_layout(Path(path), model))
    except (SklarError, OSError) as error:
        layout = judge("layout", wrong=str(error))
    found = verify_model(model, str(path))
    checks = (found.checks[0], layout, *found.checks[1:])
    if refit and all(check.passed for check in checks):
        # Fits load compiled code, which a plain check does without.
        from sklar.trust.verify.refit import refit_checks

        checks = (*checks, *refit_checks(model, progress))
    wanted = None if signer is None else signer_of(signer)
    signature, named = signature_checks([Path(path)], wanted, f"there is none in {signature_path(path)}")
    return replace(found, checks=(*checks, *signature), signer=named)


def signature_checks(paths: Sequence[Path], wanted: str | None, missing: str) -> tuple[list[Check], str | None]:
    """The signatures beside these files, all by one key, and whose it is; no check where none is there or wanted."""
    try:
        signers = {each.fingerprint for each in map(read_signature, paths) if each is not None}
    except SignatureError as error:
        return [judge("signature", wrong=str(error))], None
    if len(signers) > 1:
        return [judge("signature", wrong="the model and the checksums have different signers")], None
    if not signers:
        return [] if wanted is None else [judge("signature", wrong=missing)], None
    (signer,) = signers
    if wanted is None:
        detail = f"by {signer}; compare that with what its custodian publishes (--signer)"
        return [judge("signature", detail)], signer
    other = "" if signer == wanted else f"by {signer}, not the signer {wanted}"
    return [judge("signature", f"by {signer}, the signer that was asked for", other)], signer


def verify_model(model: Model | LinkedModel, name: str = "the model") -> Verification:
    """Check a loaded model."""
    checks = check_model(model) if isinstance(model, Model) else check_linked(model)
    found = Verification(path=name, checks=tuple(checks), certificate=model.certificate)
    if not found.passed or model.certificate.claimed_by is not None:
        return found
    independent: float | None = None
    try:
        independent, totals = check_totals(model)
    except SklarError as error:
        totals = [judge("theorem", wrong=str(error))]
    tests = _noise_tests(model)
    checks += [*totals, *_noise(model, tests)]
    return replace(found, checks=tuple(checks), independent_epsilon=independent, noise=tuple(tests))


def _noise_tests(model: Model | LinkedModel) -> list[NoiseTest]:
    if isinstance(model, Model):
        measured, stated = model.measured, model.certificate
        return examine(measured.blocks, model.measured_schema, stated.mechanism, stated.public_rows, _grids(model))
    # Tables with events are shares that were rounded to tokens: two that speak of one number differ by rounding, too.
    people, blocks = model.linked.people, []
    for block in model.measured.blocks:
        if isinstance(block.query, Shares) and block.query.what in _OF_PEOPLE:
            query = Tables(cells=people.cells, order=_OF_PEOPLE[block.query.what])
            blocks.append(Block(query=query, scales=block.scales, values=block.values))
    return examine(blocks, people, model.certificate.mechanism, model.certificate.public_rows)


def _grids(model: Model) -> list[Grid]:
    """The tables of the searches for numbers, where the file holds them."""
    grids = []
    for finding, blocks in search_blocks(model):
        if finding.of == "domain" and isinstance(blocks[0].query, Tables):
            tables = tuple(block.values for block in blocks)
            ladder = ladder_of(asked_of(finding, model.schema.attribute(finding.attribute)))
            edges = next_cells(ladder, tables, finding.scale)[: len(tables)]
            grids.append(Grid(tables=tables, edges=tuple(edges), scale=finding.scale))
    return grids


def _noise(model: Model | LinkedModel, tests: Sequence[NoiseTest]) -> list[Check]:
    if not tests:
        detail = f"not tested: some of it is stated below scale {LEAST_SCALE:g}, where an epsilon promises little"
        return [judge("noise", detail)]
    failed = [test for test in tests if not test.passed]
    if failed:
        seen = "{0.name}: {0.seen}; genuine noise looks so with a chance of {0.chance:.1g}"
        return [judge("noise", wrong=seen.format(test)) for test in failed]
    together = next((test for test in tests if test.name == ALL), None)
    share = 0.0 if together is None else visible(together.freedom, model.certificate.mechanism, together.chosen)
    power = (
        f"noise below {share:.0%} of what is stated would be found {POWER:.0%} of the time"
        if share > 0.1
        else "too few tables to find any but the plainest forgery"
    )
    linked = "" if isinstance(model, Model) else "; tables with events are not tested"
    seen = "" if together is None else f"{together.seen}; "
    rare = f"less than once in {1 / FALSE_ALARM:,.0f}"
    return [judge("noise", f"{seen}{len(tests)} tests that fail a genuine file {rare}; {power}{linked}")]
