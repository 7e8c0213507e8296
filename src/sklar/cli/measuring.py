"""What spends privacy: `sklar release` and `fit` measure a table, or several of the same people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sklar.budget.receipt import telling
from sklar.cli import options as shared
from sklar.cli.console import JSON, TIMINGS, finish, is_given, say, show_progress, warn, watched
from sklar.cli.options import command, written
from sklar.cli.products import check_out, write_rows
from sklar.machine.wording import said

if TYPE_CHECKING:
    from sklar.budget.method import Method
    from sklar.files.model import Model
    from sklar.kernel.theorems import Budget
    from sklar.machine.progress import Progress
    from sklar.public.tree import Known

_UNCHECKED = "The number of rows is not public, so nobody checked that they are enough: state rows_about in [table]."
# Lines of an evaluation that a release of a draft shows.
_LOST = 12
# Options that are not about measuring.
_ALWAYS = {"model_path", "out", "rows", "seed", "spreadsheet", "replace", "threads", "json", "quiet", "timings"}
_BUDGET = ("epsilon", "delta", "neighbors", "mechanism", "composition")


@command("Measure a table, fit, and draw rows.", JSON, TIMINGS)
@shared.privacy_options(shared.SCHEMA_OR_DRAFT)
@shared.together(
    shared.ROWS, shared.SEED, shared.DUMMIES, shared.OUT, shared.KIND, shared.SPREADSHEET, shared.MODEL_OUT
)
@shared.together(shared.REPLACE, shared.RESUME)
def release(*, out: str, model_path: Path | None, rows: int | None, seed: int | None, **options: Any) -> None:
    """Measure DATA once with noise, fit a model, and draw a synthetic table from it, or linked ones."""
    from sklar.draw.sample import check_draw
    from sklar.files.archive import load_unfitted
    from sklar.files.write import check_target, require_same, write_text
    from sklar.public.tree import Tree, known_of

    how: dict[str, Any] = {"engine": options["engine"], "spreadsheet": options.pop("spreadsheet")}
    how["kind"] = options.pop("kind")
    _check_sources("data", "epsilon")
    resume, stated = options["resume"], options["schema_path"]
    known: Known | None = None if stated is None else known_of(stated)
    known = known if resume is None else load_unfitted(resume).measured.known
    check_out(out, tables=isinstance(known, Tree), **how)
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    rows, seed = check_draw(rows, seed)
    drafted, people = (options.pop(name) for name in ("draft", "people"))
    if resume is None and (
        drafted == (options["schema_path"] is not None) or (drafted and options["engine"] == "spark")
    ):
        raise click.UsageError("Give either --schema S.toml, or --draft to have one drafted on this machine.")
    if drafted:
        named = options["data"].name.split(".")[0] if isinstance(options["data"], Path) else ""
        target = check_target(Path(out).with_name(f"{named or 'table'}.schema.toml"), (".toml",))
        text = _draft(options["data"], options["query"], named or "table", people)
        require_same(target, text, replace=options["replace"])
        write_text(target, text, private=True)
        options["schema_path"] = target
    with show_progress() as progress:
        model = _save_model(model_path, out, progress=progress, **options)
        with _naming_charge(model):
            write_rows(model, out, rows, seed, progress=progress, **how)
    drawn, (what, where) = rows or model.n_rows, ("people", "FOLDER") if isinstance(known, Tree) else ("rows", "FILE")
    _report_cost(
        model,
        {"rows": drawn, "seed": seed, "out": out, "model": model_path},
        f"{drawn:,} synthetic {what} in {out} (seed {seed}), the model in {model_path}.",
        f"More {what} cost no privacy: sklar sample {model_path} --rows N --out {where}",
        **options,
    )
    if drafted:
        _show_lost(options["data"], options["query"], out, model_path, options["schema_path"])


def _draft(data: Path | str, query: str | None, name: str, people: str | None) -> str:
    """A schema that is drafted from the rows and accepted unread, as TOML; says what it assumes."""
    import sklar

    drafted = watched(sklar.draft, shared.table_of(data, query), name=name)
    if people is not None:
        drafted = drafted.people(people)
    drafted.schema.require_person_known()
    schema = drafted.unread()
    lines = ["PRIVATE until it is reviewed: what was assumed after a look at the rows, and read by nobody."]
    for each in schema.attributes:
        ends = [each.axis.text(end) for end in each.edges[:: max(len(each.edges) - 1, 1)]]
        proposed = "found with part of the budget" if each.private else drafted.proposals[each.column].proposed
        lines.append(f"  {each.name}: {each.kind}{f' from {ends[0]} to {ends[1]}' if ends else ''}, {proposed}")
    lines += [f"  {name}: left out, {reason}" for name, reason in drafted.left_out.items()]
    lines += [f"  read with {key} = {value} ({sure}: {why})" for key, value, sure, why in drafted.remarks]
    say(*([] if is_given("json") else lines))
    return str(schema.to_toml())


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _show_lost(data: Path | str, query: str | None, out: str, model_path: Path, schema_path: Path) -> None:
    """What a release of a draft lost, on a terminal alone; and how to review the draft."""
    if is_given("json"):
        return
    import sklar

    if _on_terminal() and not is_given("quiet"):
        lost = watched(sklar.evaluate, shared.table_of(data, query), out, model_path)
        say("", "PRIVATE, for your eyes: what was lost.", *islice(lost.lines(), _LOST))
    say(f"All that was lost, PRIVATE: sklar evaluate {data} {out} --schema {model_path}")
    say(f"Nobody has read {schema_path}. To release again by it (--schema): sklar schema review {schema_path} {data}")


@command("Measure a table and fit a model.", JSON, TIMINGS)
@shared.privacy_options(shared.SCHEMA_IF_GIVEN)
@shared.DUMMIES
@written("--model", "OUT.sklar", "Where the model goes.", to="model_path", required=True)
@shared.together(shared.REPLACE, shared.RESUME)
def fit(*, model_path: Path, **options: Any) -> None:
    """Measure DATA once with noise and fit a model, without drawing rows."""
    from sklar.files.write import check_target

    _check_sources("data", "schema_path", "epsilon")
    check_target(model_path, (".sklar",))
    with show_progress() as progress:
        model = _save_model(model_path, progress=progress, **options)
    _report_cost(model, {"model": model_path}, f"The model is in {model_path}.", **options)


def _check_sources(*measuring: str) -> None:
    """Require what `measuring` DATA needs, or what was measured before, but not both."""
    context, asked = click.get_current_context(), click.get_current_context().command.params
    sources = {each.name: context.get_parameter_source(each.name or "") for each in asked}
    given = {each.name: each for each in asked if sources[each.name] == ParameterSource.COMMANDLINE}
    if "resume" in given:
        for odd in (each for name, each in given.items() if name not in _ALWAYS | {"resume"}):
            raise click.UsageError(f"{odd.opts[0]} is about measuring, which --resume replaces. Leave one out.")
        return
    for parameter in asked:
        if parameter.name in measuring and parameter.name not in given:
            raise click.MissingParameter(ctx=context, param=parameter)


def _save_model(
    model_path: Path, *outs: str, resume: Path | None, replace: bool, progress: Progress, **options: Any
) -> Any:
    """Measure and fit, or fit to what was measured before; and save the model before anything else can fail."""
    from sklar.budget.method import Method
    from sklar.files.archive import load_unfitted
    from sklar.public.tree import joint_of, known_of

    kept, given = resume, None if resume is None else load_unfitted(resume)
    if given is None:
        method = Method.of(options["method"], preset=options["preset"], dummies=options["dummies"])
        known, kept = known_of(options.pop("schema_path")), _beside(model_path)
        options["known"], budget = known, method.budget_of(None, **{name: options[name] for name in _BUDGET})
        own = known, method.budget_for(joint_of(known), budget), method
    else:
        own = given.measured.known, given.measured.certificate.budget, given.method
    _require_own([model_path, *outs], *own, replace=replace)
    fit_model = partial(_fit_data, keep=kept, **options) if given is None else given.fit
    fitted: Any = fit_model(progress=progress)
    _save(fitted, model_path, kept)
    return fitted


def _beside(model_path: Path) -> Path:
    """Where what was measured for a model lies until that is saved."""
    return model_path.with_suffix(".measured.sklar")


def _save(model: Model, path: Path, kept: Path | None) -> None:
    """Save a model: from now on its file holds what was measured."""
    with _naming_charge(model, kept):
        model.save(path)
        if kept is not None:
            kept.unlink(missing_ok=True)


def _require_own(places: Sequence[str | Path], known: Known, budget: Budget, method: Method, *, replace: bool) -> None:
    """Refuse to write over a model, the first place, and rows that the same command on the same inputs did not write.

    The model says by what schema, budget and method it was made; what releases found of private domains may differ.
    """
    from sklar.files.archive import wrote
    from sklar.files.write import require_own

    for there in [place for place in map(Path, places) if place.exists()][:1]:
        require_own(there, own=replace or (there == places[0] and wrote(there, known, budget, method)))


def _fit_data(*, data: Any, query: str | None, known: Known, check_first: bool, **settings: Any) -> Model:
    """Measure DATA and fit a model."""
    from sklar.public.tree import joint_of
    from sklar.release import fit as release_model

    settings["ledger"] = shared.open_ledger(settings["ledger"], settings.pop("ledger_key"))
    if (target := settings.pop("target")) is not None:
        known = known.aimed(*target.split(","))
    schema = joint_of(known)
    several = schema.person is not None and schema.person.rows_per_person > 1
    if schema.rows_about is None and (several or settings["neighbors"] == "add-remove"):
        warn(_UNCHECKED)
    if check_first:
        _check_first(shared.table_of(data, query), known, settings["engine"], settings["progress"])
    return release_model(shared.table_of(data, query), known, **settings)


def _check_first(table: object, known: Known, engine: str, progress: Progress) -> None:
    """Stop where the schema would lose most values of an attribute: private, and before anything is measured.

    How rows of linked tables match is told.
    """
    from sklar.cli.schema import warn_of_unfit
    from sklar.custodian.check import check
    from sklar.errors import DataError

    if engine == "spark":
        raise click.UsageError("--check reads the rows on this machine. Leave it out with --engine spark.")
    found = check(known, table, progress=progress)
    for line in found.links:
        click.echo(line, err=True)
    if warn_of_unfit(found.values or ()):
        raise DataError(said("cli.stopped"))


def _naming_charge(model: Model, kept: Path | None = None) -> AbstractContextManager[None]:
    """A block whose failures say what was charged for the model, and where what was measured is kept."""
    return telling([model.certificate.receipt], model.certificate.epsilon, kept)


def _report_cost(model: Model, document: dict[str, Any], *lines: str, **options: Any) -> None:
    """Print what was released and what it cost, as JSON or as text: public figures."""
    with _naming_charge(model):
        name, size = model.measured.known.name, model.n_rows
        book = shared.open_ledger(options["ledger"], options["ledger_key"])
        account = None if book is None else book.account(options["dataset"] or name)
        facts = {
            "table": name,
            "table_rows": size,
            "certificate": model.certificate.to_dict(),
            "settings": dict(model.settings),
            "ledger": None if account is None else account.to_dict(),
        }
        if account is not None:
            lines = (said("cli.charged", of=account, place=options["ledger"], n=len(account.charges)), *lines)
        finish(document | facts, *model.summary(), *lines)
