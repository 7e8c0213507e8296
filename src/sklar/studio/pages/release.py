"""Step 4, release: what will happen, how far it is, and what came of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sklar.budget.account import Account
from sklar.errors import SklarError
from sklar.public.schema import Schema
from sklar.studio.folder import LEDGER, Desk
from sklar.studio.guard import form_of
from sklar.studio.pages.cost import DELTA, foresee, parsed
from sklar.studio.pages.frame import (
    Frame,
    Studio,
    desk_of,
    frame,
    go,
    plain,
    releases,
    schema_text,
    show,
    table_words,
    tell,
)
from sklar.studio.pages.plan import account_of, promise
from sklar.studio.work import STAGES, Stage, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stage on the screen."""

    label: str
    done: bool
    here: bool
    share: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressing:
    """Work on the screen: stages with bars, and what the books say."""

    desk: Desk
    state: State
    bars: tuple[Bar, ...]
    charged: bool
    form_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """The page."""

    frame: Frame
    desk: Desk
    schema: Schema
    waiting: int
    account: Account | None
    left: str
    promise: tuple[str, ...]
    seconds: str
    releases: tuple[int, ...]
    work: Progressing | None
    elsewhere: State | None
    asking: bool
    message: str


def release(studio: Studio, request: Request) -> Response:
    """What will happen; or what is happening, or has."""
    desk = desk_of(studio, request)
    text = schema_text(studio, desk)
    if text is None or desk.rows is None:
        return go(f"/t/{desk.name}/open")
    schema = parsed(text)
    account, _ = account_of(studio, schema)
    running = studio.works.running()
    states = [each for each in studio.works.all(desk.name) if each.kind == "release"]
    last = states[-1] if states else None
    number = max(releases(studio.folder, desk), default=0) + 1
    view = Releasing(
        frame=frame(
            studio,
            request,
            title="Release",
            step="release",
            desk=desk,
            private=last is not None,
            commands=(_command(desk, schema, number - 1 if last is not None and last.state == "done" else number),),
        ),
        desk=desk,
        schema=schema,
        waiting=len(schema.not_reviewed),
        account=account,
        left="" if account is None else f"{account.left:.4g}",
        promise=promise(desk.epsilon, "person" if schema.person is not None else "row")[:1],
        seconds=f"{max(foresee(schema, desk.epsilon, desk.rows).forecast.seconds, 1):.0f}",
        releases=tuple(releases(studio.folder, desk)),
        work=None if last is None else _progressing(studio, desk, schema, last),
        elsewhere=running if running is not None and (last is None or running.number != last.number) else None,
        message="" if last is None else plain(studio, last.message),
        asking=request.query_params.get("cancel") == "ask",
    )
    return show("release.html.j2", view)


def _command(desk: Desk, schema: Schema, number: int) -> str:
    stem = f"{desk.name}-{number}"
    return (
        f"sklar release {table_words(desk)} --schema {shlex.quote(desk.schema)} --epsilon {desk.epsilon:g} --check "
        f"--ledger {LEDGER} --dataset {shlex.quote(schema.name)} --out {stem}.csv --model {stem}.sklar"
    )


def _progressing(studio: Studio, desk: Desk, schema: Schema, state: State) -> Progressing:
    account, _ = account_of(studio, schema)
    charges = 0 if account is None else len(account.charges)
    return Progressing(
        desk=desk,
        state=state,
        bars=tuple(
            _bar(stage, here=place == len(state.stages) - 1, over=state.over)
            for place, stage in enumerate(state.stages)
        ),
        charged=charges > state.charges_before,
        form_token=studio.session.form_token,
    )


def _bar(stage: Stage, *, here: bool, over: bool) -> Bar:
    working = here and not over
    words = [f"{stage.done:,} {stage.unit}"] if stage.unit else []
    if stage.unit and stage.seconds > 0.5 and stage.done:
        speed = stage.done / stage.seconds
        words.append(f"{speed:,.0f} {stage.unit} per second")
        if working and stage.total and stage.total > stage.done:
            words.append(f"about {_time((stage.total - stage.done) / speed)} left")
    words.append(_time(stage.seconds))
    share = None if not stage.total else min(stage.done / stage.total, 1.0)
    return Bar(
        label=STAGES.get(stage.name, stage.name.capitalize()),
        done=not working,
        here=working,
        share=share if working else 1.0,
        words=", ".join(words),
    )


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def state(studio: Studio, request: Request) -> Response:
    """How far a release is: for the script, which asks again and again."""
    desk = desk_of(studio, request)
    schema = parsed(schema_text(studio, desk) or "")
    states = [each for each in studio.works.all(desk.name) if each.kind == "release"]
    if not states:
        return show("nothing.html.j2", Nothing())
    return show("progress.html.j2", Shown(work=_progressing(studio, desk, schema, states[-1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The part of the page that changes by itself."""

    work: Progressing


def start(studio: Studio, request: Request) -> Response:
    """Begin a release, in a process of its own."""
    desk = desk_of(studio, request)
    here = f"/t/{desk.name}/release"
    try:
        schema = parsed(schema_text(studio, desk) or "")
        schema.require_reviewed()
        account, problem = account_of(studio, schema)
        if account is None:
            return tell(studio, f"/t/{desk.name}/plan", problem or "Set the data set's total first.", form={})
        order = {
            "epsilon": desk.epsilon,
            "delta": DELTA,
            "dataset": schema.name,
            "release": max(releases(studio.folder, desk), default=0) + 1,
            "charges_before": len(account.charges),
            "compare": form_of(request).get("compare") == "yes",
        }
        studio.works.begin("release", desk.name, order)
    except SklarError as error:
        return tell(studio, here, str(error), form=form_of(request))
    return go(here)


def draw(studio: Studio, request: Request) -> Response:
    """Draw the rows of a model once more, where they could not be written: it costs nothing."""
    desk, form = desk_of(studio, request), form_of(request)
    asked = form.get("release", "")
    if not asked.isdigit() or int(asked) not in releases(studio.folder, desk):
        return tell(studio, f"/t/{desk.name}/release", "There is no such release.", form=form)
    try:
        studio.works.begin("sample", desk.name, {"release": int(asked)})
    except SklarError as error:
        return tell(studio, f"/t/{desk.name}/release", str(error), form=form)
    return tell(studio, f"/t/{desk.name}/look", "The rows are being drawn.")


def cancel(studio: Studio, request: Request) -> Response:
    """Stop a release. Once it is charged, ask first: the charge stays."""
    desk, form = desk_of(studio, request), form_of(request)
    here = f"/t/{desk.name}/release"
    running = studio.works.running()
    if running is None or running.desk != desk.name:
        return go(here)
    schema = parsed(schema_text(studio, desk) or "")
    if _progressing(studio, desk, schema, running).charged and form.get("sure") != "yes":
        return go(f"{here}?cancel=ask")
    studio.works.cancel(running.number)
    return go(here)
