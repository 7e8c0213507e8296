"""Steps 4 and 5: release; share it, which is to look at it, beside the real rows and as readers will, and to publish.

A release begins with what will happen; then its page shows how far it is, and what came of it. Books are beside.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, HTMLResponse, Response

from sklar.answer.report import publishable
from sklar.budget.ledger import Ledger, check_releases
from sklar.errors import BudgetError, DataError, SklarError
from sklar.files.archive import load
from sklar.files.write import write_text
from sklar.machine.wording import said
from sklar.studio.folder import LEDGER, Folder
from sklar.studio.guard import REPORT_POLICY
from sklar.studio.pages.cost import DELTA, foresee
from sklar.studio.pages.planning import account_of, bought_by
from sklar.studio.pages.visit import Visit, go, show
from sklar.studio.work import STAGES, State
from sklar.trust.verify import verify

_WHAT = {
    ".csv": "synthetic rows",
    ".sklar": "the model: noisy tables, certificate, and what draws rows",
    ".report.html": "the report for readers",
}


def release(visit: Visit) -> Response:
    """What will happen; or what is happening, or has."""
    desk = visit.desk
    if visit.text is None or desk.rows is None:
        return go(visit.address("open"))
    schema, (account, _), running, last = visit.schema, account_of(visit), visit.works.running(), _last(visit)
    number = max(visit.releases, default=0) + (last is None or last.state != "done")
    stem = f"{desk.name}-{number}"
    command = (
        f"sklar release {visit.table} --schema {visit.schema_path} --epsilon {desk.epsilon:g} --check "
        f"--ledger {LEDGER} --dataset {shlex.quote(schema.name)} --out {stem}.csv --model {stem}.sklar"
    )
    return visit.page(
        "release.html.j2",
        "Release",
        "release",
        private=last is not None,
        commands=(command,),
        schema=schema,
        waiting=len(schema.not_reviewed) + bool(schema.ask_person),
        bought=bought_by(schema, desk.epsilon, desk, account),
        plan=_plan(visit),
        account=account,
        seconds=f"{max(foresee(schema, desk.epsilon, desk.rows).forecast.seconds, 1):.0f}",
        releases=visit.releases,
        work=None if last is None else _work(visit, last),
        elsewhere=running if running is not None and (last is None or running.number != last.number) else None,
        message="" if last is None else visit.plain(last.message),
        asking=visit.query("cancel") == "ask",
    )


def _plan(visit: Visit) -> str:
    """What a release would spend, on which schema, after which others: a form about another plan is refused."""
    return f"{visit.desk.epsilon!r} {max(visit.releases, default=0)} {visit.schema.digest}"


def _last(visit: Visit) -> State | None:
    """The last release of the table, as far as it has come."""
    return next((each for each in reversed(visit.works.all(visit.desk.name)) if each.kind == "release"), None)


def _work(visit: Visit, state: State) -> dict[str, Any]:
    """Work on the screen: stages with bars, and what the books say."""
    return {"state": state, "labels": STAGES, "charged": _is_charged(visit, state)}


def _is_charged(visit: Visit, state: State) -> bool:
    account, _ = account_of(visit)
    return account is not None and len(account.charges) > state.order.get("charges_before", 0)


def state(visit: Visit) -> Response:
    """How far a release is: for the script, which asks again and again."""
    last = _last(visit)
    return Response(media_type="text/html") if last is None else show("progress.html.j2", work=_work(visit, last))


def start(visit: Visit) -> Response:
    """Begin a release, in a process of its own."""
    visit.back = visit.address("release")
    desk, schema = visit.desk, visit.schema
    schema.require_reviewed()
    account, problem = account_of(visit)
    if account is None:
        return visit.tell(visit.address("plan"), problem or "Set the data set's total first.", form={})
    if visit.form.get("plan") != _plan(visit):
        raise BudgetError(said("studio.changed", epsilon=desk.epsilon))
    if visit.releases and visit.form.get("again") != "yes":
        raise BudgetError("say that you want another release: what it spends is added to what was spent.")
    order = {
        "epsilon": desk.epsilon,
        "delta": DELTA,
        "dataset": schema.name,
        "charges_before": len(account.charges),
        "compare": visit.form.get("compare") == "yes",
    }
    visit.works.begin("release", desk.name, max(visit.releases, default=0) + 1, **order)
    return go(visit.back)


def draw(visit: Visit) -> Response:
    """Draw the rows of a model once more, where they could not be written: it costs nothing."""
    visit.back = visit.address("release")
    visit.works.begin("sample", visit.desk.name, visit.form_release)
    return visit.tell(visit.address("look"), "The rows are being drawn.")


def cancel(visit: Visit) -> Response:
    """Stop a release. Once it is charged, ask first: the charge stays."""
    running = visit.works.running()
    if running is not None and running.desk == visit.desk.name:
        if _is_charged(visit, running) and visit.form.get("sure") != "yes":
            return go(visit.address("release", cancel="ask"))
        visit.works.cancel(running.number)
    return go(visit.address("release"))


def look(visit: Visit) -> Response:
    """The comparison of a release with the real rows: PRIVATE."""
    number, desk = visit.release, visit.desk
    commands: tuple[str, ...] = ()
    there = number is not None and visit.folder.inside(f"{visit.stem}.PRIVATE.html").is_file()
    if number is not None and not desk.query:
        names = f"{shlex.quote(desk.data)} {visit.stem}.csv --schema {visit.stem}.sklar"
        commands = (f"sklar evaluate {names} --report {visit.stem}.PRIVATE.html",)
    tried = [each for each in visit.works.all(desk.name) if each.kind != "publish" and each.release == number]
    problem = visit.plain(tried[-1].message or tried[-1].remark) if tried and tried[-1].over else ""
    shown: dict[str, Any] = {"public": False, "there": there, "running": visit.works.running(), "problem": problem}
    return _share(visit, "look.html.j2", "first look, beside the real rows", commands, private=True, **shown)


def report(visit: Visit) -> Response:
    """The report that is safe to publish."""
    there = visit.release is not None
    commands = (f"sklar report {visit.stem}.sklar --out {visit.stem}.report.html",) if there else ()
    shown = {"public": True, "there": there, "running": None, "problem": ""}
    return _share(visit, "look.html.j2", "the public report", commands, **shown)


def _share(visit: Visit, template: str, title: str, commands: tuple[str, ...], **shown: Any) -> Response:
    """A page of the last step, about the release that the address names."""
    shown |= {"release": visit.release, "releases": visit.releases}
    return visit.page(template, f"Share: {title}", "look", commands=commands, **shown)


def compare(visit: Visit) -> Response:
    """Compare a release with the real rows, in a process of its own."""
    visit.back = visit.address("look")
    begun = visit.works.begin("compare", visit.desk.name, visit.form_release)
    return go(visit.address("look", release=begun.release))


def comparison(visit: Visit) -> Response:
    """The comparison itself, which stands in a frame of the page."""
    path = visit.folder.inside(f"{visit.stem}.PRIVATE.html")
    if not path.is_file():
        raise DataError("there is no comparison yet. Make one on the page before.")
    return HTMLResponse(path.read_text(encoding="utf-8"), headers={"Content-Security-Policy": REPORT_POLICY})


def public_report(visit: Visit) -> Response:
    """The report itself, made from the model file alone, and kept beside it."""
    return HTMLResponse(_report_text(visit), headers={"Content-Security-Policy": REPORT_POLICY})


def _report_text(visit: Visit) -> str:
    """The report of a release; written beside its model when it is asked for first."""
    model, path = (visit.folder.inside(visit.stem + suffix) for suffix in (".sklar", ".report.html"))
    if path.is_file() and path.stat().st_mtime >= model.stat().st_mtime:
        return path.read_text(encoding="utf-8")
    text = publishable(load(model), file_name=model.name)
    write_text(path, text)
    return text


def publishing(visit: Visit) -> Response:
    """What there is to publish."""
    number, out = visit.release, ""
    commands: tuple[str, ...] = ()
    products: tuple[list[Path], list[Path]] = ([], [])
    if number is not None:
        # So that it can be downloaded.
        _report_text(visit)
        model, out = f"{visit.stem}.sklar", f"{visit.stem}-published"
        commands = (f"sklar verify {model}", f"sklar publish {model} --out {out}", f"sklar verify {out}")
        products = _products(visit, number)
    works = [each for each in visit.works.all(visit.desk.name) if each.kind == "publish" and each.release == number]
    shown: dict[str, Any] = {"products": products, "what": _WHAT, "folder": visit.folder, "out": out}
    shown["running"] = visit.works.running()
    shown |= {"last": works[-1] if works else None, "problem": visit.plain(works[-1].message) if works else ""}
    return _share(visit, "publish.html.j2", "publish", commands, **shown)


def _products(visit: Visit, number: int) -> tuple[list[Path], list[Path]]:
    """The files of a release that may be given to anybody: single ones, and those of its published folder."""
    folder, stem = visit.folder, f"{visit.desk.name}-{number}"
    root = folder.inside(f"{stem}-published")
    single = [folder.inside(name) for name in (*(stem + suffix for suffix in _WHAT), visit.desk.schema)]
    published = [path for path in sorted(root.rglob("*")) if path.resolve().is_relative_to(root)]
    return [path for path in single if path.is_file()], [path for path in published if path.is_file()]


def verdict(visit: Visit) -> Response:
    """Verify's verdict, fetched after the page: it recomputes what the release cost."""
    path = visit.folder.inside(f"{visit.stem}.sklar")
    result = verify(path)
    lines = [line.replace(str(path), path.name) for line in result.lines()]
    concluded = lines[lines.index("") + 1 :] if "" in lines else lines
    return show("verdict.html.j2", found=result, checks=result.checks, concluded=concluded)


def publish(visit: Visit) -> Response:
    """Write the folder, in a process of its own."""
    visit.back = visit.address("publish")
    form = visit.form
    stated = {
        name: form[name].strip() for name in ("publisher", "contact", "license", "url") if form.get(name, "").strip()
    }
    begun = visit.works.begin("publish", visit.desk.name, visit.form_release, said=stated)
    return go(visit.address("publish", release=begun.release))


def download(visit: Visit) -> Response:
    """A file that may be given to anybody: of those that the page lists, and of no other."""
    path = visit.folder.inside(visit.request.path_params["file"])
    if any(path in part for number in visit.releases for part in _products(visit, number)):
        # A browser must never show it as a page of the studio.
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")
    raise DataError("there is no such file to give out. Choose one from the list.")


def books(visit: Visit) -> Response:
    """All that the ledger says."""
    there, models = visit.folder.ledger.exists(), _models(visit.folder)
    commands = [f"sklar ledger show {LEDGER}", " ".join(["sklar ledger check", LEDGER, *models])]
    commands += [f"sklar ledger anchor {LEDGER} PLACE"] * there
    values: dict[str, Any] = {"problem": "", "accounts": (), "entries": (), "problems": (), "remarks": ()}
    try:
        if there:
            ledger = Ledger(visit.folder.ledger)
            standing, values["accounts"] = ledger.standing(), ledger.accounts()
            values |= {"entries": ledger.history(), "problems": [visit.plain(line) for line in standing.problems]}
            # What a command does stands at the foot, with the others.
            remarks = (visit.plain(line).partition(": sklar ")[0] for line in standing.remarks)
            values["remarks"] = [f"{line.rstrip('.')}." for line in remarks]
    except SklarError as error:
        values["problem"] = visit.plain(str(error))
    values |= {"there": there, "releases": bool(models) and there}
    return visit.page("books.html.j2", "Books", "books", commands=tuple(commands), **values)


def paid(visit: Visit) -> Response:
    """Whether the ledger paid for every release, fetched after the page: every model is read for it."""
    entries = Ledger(visit.folder.ledger).history()
    models = [(name, load(visit.folder.inside(name)).measured) for name in _models(visit.folder)]
    problems = check_releases(LEDGER, entries, (), models).releases
    made = [(name, f"{measured.certificate.epsilon:.4g}", problems[name]) for name, measured in models]
    return show("paid.html.j2", made=made)


def _models(folder: Folder) -> list[str]:
    return [f"{desk.name}-{number}.sklar" for desk in folder.desks() for number in folder.releases(desk)]
