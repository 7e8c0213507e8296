"""Step 4, release: what will happen, how far it is, and what came of it."""

from __future__ import annotations

import shlex
from typing import Any

from starlette.responses import Response

from sklar.studio.folder import LEDGER
from sklar.studio.pages.cost import DELTA, foresee
from sklar.studio.pages.planning import account_of, promise, unit_of
from sklar.studio.pages.visit import Visit, go, show
from sklar.studio.work import STAGES, Stage, State


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
        waiting=len(schema.not_reviewed),
        account=account,
        left="" if account is None else f"{account.left:.4g}",
        promise=promise(desk.epsilon, unit_of(schema))[:1],
        seconds=f"{max(foresee(schema, desk.epsilon, desk.rows).forecast.seconds, 1):.0f}",
        releases=visit.releases,
        work=None if last is None else _work(visit, last),
        elsewhere=running if running is not None and (last is None or running.number != last.number) else None,
        message="" if last is None else visit.plain(last.message),
        asking=visit.query("cancel") == "ask",
    )


def _last(visit: Visit) -> State | None:
    """The last release of the table, as far as it has come."""
    return next((each for each in reversed(visit.works.all(visit.desk.name)) if each.kind == "release"), None)


def _work(visit: Visit, state: State) -> dict[str, Any]:
    """Work on the screen: stages with bars, and what the books say."""
    last = None if state.over or not state.stages else state.stages[-1]
    bars = [_bar(stage, working=stage is last) for stage in state.stages]
    return {"state": state, "bars": bars, "charged": _is_charged(visit, state)}


def _is_charged(visit: Visit, state: State) -> bool:
    account, _ = account_of(visit)
    return account is not None and len(account.charges) > state.charges_before


def _bar(stage: Stage, *, working: bool) -> dict[str, Any]:
    words = [f"{stage.done:,} {stage.unit}"] if stage.unit else []
    if stage.unit and stage.seconds > 0.5 and stage.done:
        speed = stage.done / stage.seconds
        words.append(f"{speed:,.0f} {stage.unit} per second")
        if working and stage.total and stage.total > stage.done:
            words.append(f"about {_time((stage.total - stage.done) / speed)} left")
    share = min(stage.done / stage.total, 1.0) if stage.total else None
    return {
        "label": STAGES.get(stage.name, stage.name.capitalize()),
        "here": working,
        "share": share if working else 1.0,
        "words": ", ".join([*words, _time(stage.seconds)]),
    }


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


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
    order = {
        "epsilon": desk.epsilon,
        "delta": DELTA,
        "dataset": schema.name,
        "release": max(visit.releases, default=0) + 1,
        "charges_before": len(account.charges),
        "compare": visit.form.get("compare") == "yes",
    }
    visit.works.begin("release", desk.name, order)
    return go(visit.back)


def draw(visit: Visit) -> Response:
    """Draw the rows of a model once more, where they could not be written: it costs nothing."""
    visit.back = visit.address("release")
    visit.works.begin("sample", visit.desk.name, {"release": visit.form_release})
    return visit.tell(visit.address("look"), "The rows are being drawn.")


def cancel(visit: Visit) -> Response:
    """Stop a release. Once it is charged, ask first: the charge stays."""
    running = visit.works.running()
    if running is not None and running.desk == visit.desk.name:
        if _is_charged(visit, running) and visit.form.get("sure") != "yes":
            return go(visit.address("release", cancel="ask"))
        visit.works.cancel(running.number)
    return go(visit.address("release"))
