"""Step 3, plan: what an epsilon buys and promises, what the ledger has left, and the total that is set once."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from sklar.answer.report.render import percent
from sklar.answer.wants import read_want
from sklar.budget.account import Account, choose_accountant
from sklar.budget.forecast import Forecast
from sklar.budget.ledger import Ledger
from sklar.budget.risk import risk_at
from sklar.errors import BudgetError, LedgerError, SklarError
from sklar.public.schema import Schema
from sklar.studio.folder import LEDGER, Desk
from sklar.studio.guard import form_of
from sklar.studio.pages.cost import DELTA, TWICE, foresee, parsed
from sklar.studio.pages.curves import curves
from sklar.studio.pages.frame import Frame, Studio, desk_of, frame, go, ledger_path, schema_text, show, tell

# Where the slider stands: from hardly any budget to hardly a promise, in steps that look even.
EPSILONS = (
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.75,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    4.0,
    5.0,
    6.0,
    8.0,
    10.0,
)
_CURVE = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
# A forecast of so many levels takes a second: fewer points must do.
_MANY_LEVELS = 2_000
_TOTAL = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A question that the release must answer, and whether an epsilon does."""

    number: int
    text: str
    met: bool
    error: str
    needs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """What one epsilon buys, in figures and words."""

    epsilon: float
    one_way: str
    pair: str
    one_way_share: str
    pair_share: str
    noisy: int
    pairs: int
    noisiest: tuple[str, ...]
    split: tuple[tuple[str, float, str], ...]
    duration: str
    promise: tuple[str, ...]
    fits: bool
    left: str
    goals: tuple[Goal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The page."""

    frame: Frame
    desk: Desk
    rows: int
    waiting: int
    epsilons: tuple[float, ...]
    place: int
    bought: Bought
    account: Account | None
    ledger_problem: str
    total: float
    unit: str
    target: str
    typed: str


def plan(studio: Studio, request: Request) -> Response:
    """The slider, what it buys, and the books."""
    desk = desk_of(studio, request)
    text = schema_text(studio, desk)
    if text is None or desk.rows is None:
        return go(f"/t/{desk.name}/open")
    schema = parsed(text)
    account, problem = account_of(studio, schema)
    epsilon = _epsilon(request.query_params.get("epsilon"), desk.epsilon)
    unit = "row" if schema.person is None else "person"
    wants = "".join(f" --want {shlex.quote(text)}" for text in desk.goals)
    commands = [f"sklar forecast --schema {shlex.quote(desk.schema)} --rows {desk.rows} --epsilon {epsilon:g}"]
    if wants:
        commands.append(
            f"sklar plan --schema {shlex.quote(desk.schema)} --rows {desk.rows} --epsilon {epsilon:g}{wants}"
        )
    if account is None or not account.charges:
        total = _TOTAL if account is None else account.epsilon
        person = "" if unit == "row" else " --unit person"
        name = shlex.quote(schema.name)
        commands.append(f"sklar ledger init {LEDGER} --dataset {name} --epsilon {total:g}{person}")
    note = studio.notes.find(request.query_params.get("note"))
    view = Planned(
        frame=frame(studio, request, title="Plan the budget", step="plan", desk=desk, commands=tuple(commands)),
        desk=desk,
        rows=desk.rows,
        waiting=len(schema.not_reviewed),
        epsilons=EPSILONS,
        place=min(range(len(EPSILONS)), key=lambda at: abs(math.log(EPSILONS[at] / epsilon))),
        bought=_bought(schema, epsilon, desk, account),
        account=account,
        ledger_problem=problem,
        total=_TOTAL,
        unit=unit,
        target=desk.target,
        typed="" if note is None else note.form.get("want", ""),
    )
    return show("plan.html.j2", view)


def account_of(studio: Studio, schema: Schema) -> tuple[Account | None, str]:
    """The data set's account in the folder's ledger; None where there is none, with what is wrong if anything is."""
    if not ledger_path(studio).exists():
        return None, ""
    try:
        accounts = Ledger(ledger_path(studio)).accounts()
    except LedgerError as error:
        return None, str(error)
    return next((each for each in accounts if each.dataset == schema.name), None), ""


def _epsilon(text: str | None, else_: float) -> float:
    try:
        value = float(text or "")
    except ValueError:
        return else_
    return value if math.isfinite(value) and 0.001 <= value <= 1000 else else_


def _bought(schema: Schema, epsilon: float, desk: Desk, account: Account | None) -> Bought:
    rows = desk.rows or 1
    foreseen = foresee(schema, epsilon, rows)
    found = foreseen.forecast
    fits = account is None or choose_accountant(account, found.budget, found.spend) is not None
    m = found.schema.n_attributes
    return Bought(
        epsilon=epsilon,
        one_way=f"±{TWICE * found.one_way_error:,.0f} rows",
        pair=f"±{TWICE * found.pair_error:,.0f} rows",
        one_way_share=percent(found.one_way_share),
        pair_share=percent(found.pair_share),
        noisy=foreseen.noisy,
        pairs=m * (m - 1) // 2,
        noisiest=tuple(f"{one} x {other}" for one, other in foreseen.noisiest),
        split=tuple((name, 100 * share, percent(share)) for name, share in found.split),
        duration=_duration(found),
        promise=promise(epsilon, "person" if schema.person is not None else "row"),
        fits=fits,
        left="" if account is None else f"{account.left:.4g}",
        goals=tuple(_goal(number, goal, schema, found) for number, goal in enumerate(desk.goals)),
    )


def _goal(number: int, text: str, schema: Schema, found: Forecast) -> Goal:
    """A question with its margin, as `sklar plan` reads it, and the smallest epsilon of the slider that answers it."""
    try:
        want = read_want(text, schema, found.n_rows, public_rows=found.budget.rows_are_public)
    except SklarError as error:
        return Goal(number=number, text=text, met=False, error=str(error), needs="")
    reach = want.reach(found)
    needs = next(
        (each for each in EPSILONS if want.reach(foresee(schema, each, found.n_rows).forecast) <= want.within), None
    )
    return Goal(
        number=number,
        text=want.text,
        met=reach <= want.within,
        error=f"±{percent(reach / found.n_rows)} of the rows",
        needs="no epsilon up to 10 suffices" if needs is None else f"epsilon {needs:g} suffices",
    )


def set_goals(studio: Studio, request: Request) -> Response:
    """Add a question that the release must answer, or take one away."""
    desk, form = desk_of(studio, request), form_of(request)
    here = f"/t/{desk.name}/plan?epsilon={_epsilon(form.get('epsilon'), desk.epsilon):g}#goals"
    goals = list(desk.goals)
    try:
        if form.get("remove", "").isdigit():
            goals = [goal for number, goal in enumerate(goals) if number != int(form["remove"])]
        else:
            wanted = form.get("want", "").strip()
            read_want(wanted, parsed(schema_text(studio, desk) or ""), desk.rows or 1, public_rows=True)
            goals.append(wanted)
        studio.folder.save(desk, goals=goals)
    except SklarError as error:
        return tell(studio, here, str(error), form=form)
    return go(here)


def _duration(found: Forecast) -> str:
    seconds = found.seconds
    return f"about {max(round(seconds), 1)} s" if seconds < 100 else f"about {seconds / 60:.0f} min"


def promise(epsilon: float, unit: str) -> tuple[str, ...]:
    """What an epsilon promises to any one row or person, in plain words."""
    odds = math.exp(min(epsilon, 700.0))
    _, guess = risk_at(epsilon, DELTA, curved=True).right(1)
    return (
        f"Whatever else somebody knows: no conclusion about one {unit} becomes more than {_times(odds)} times "
        f"as likely, or as unlikely, because of that {unit}'s own data.",
        f"Who would have to toss a coin about a fact of one {unit} guesses right at most "
        f"{math.ceil(1000 * guess) / 10:.4g}% of the time after seeing the release.",
        f"This holds for every {unit} of the table, but for a chance of 1 in {math.floor(1 / DELTA):,} (delta).",
    )


def _times(odds: float) -> str:
    """A factor in three digits, rounded up.

    >>> _times(2.7183), _times(22026.4)
    ('2.72', '22,100')
    """
    digits = 2 - math.floor(math.log10(odds))
    raised = math.ceil(odds * 10.0**digits - 1e-9) / 10.0**digits
    return f"{raised:,.{max(digits, 0)}f}" if odds < 1e15 else f"{raised:.3g}"


def forecast(studio: Studio, request: Request) -> Response:
    """What another epsilon would buy: for the script, as the slider moves."""
    desk = desk_of(studio, request)
    schema = parsed(schema_text(studio, desk) or "")
    account, _ = account_of(studio, schema)
    epsilon = _epsilon(request.query_params.get("epsilon"), desk.epsilon)
    return show("bought.html.j2", Part(bought=_bought(schema, epsilon, desk, account)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of the page that the slider changes."""

    bought: Bought


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The forecast's curves."""

    drawing: Markup


def curve(studio: Studio, request: Request) -> Response:
    """The forecast's curves, fetched after the page: they take several forecasts."""
    desk = desk_of(studio, request)
    schema = parsed(schema_text(studio, desk) or "")
    points = _CURVE if schema.n_levels < _MANY_LEVELS else _CURVE[::3]
    found = [foresee(schema, epsilon, desk.rows or 1).forecast for epsilon in points]
    return show("curve.html.j2", Curves(drawing=curves(found)))


def choose(studio: Studio, request: Request) -> Response:
    """Keep the plan; and set the data set's total, where none is set yet."""
    desk, form = desk_of(studio, request), form_of(request)
    here = f"/t/{desk.name}/plan"
    try:
        schema = parsed(schema_text(studio, desk) or "")
        epsilon = _number(form, "epsilon")
        account, problem = account_of(studio, schema)
        if problem:
            raise LedgerError(problem)
        if account is None:
            total = _number(form, "total")
            if total < epsilon:
                raise BudgetError(f"the total must be at least this release's epsilon={epsilon:g}, got {total:g}.")
            Ledger(ledger_path(studio)).open_account(
                schema.name, epsilon=total, delta=DELTA, unit="row" if schema.person is None else "person"
            )
        studio.folder.save(desk, epsilon=epsilon, target="planned")
    except SklarError as error:
        return tell(studio, here, str(error), form=form)
    return go(f"/t/{desk.name}/release")


def _number(form: Mapping[str, str], name: str) -> float:
    try:
        value = float(form.get(name, ""))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BudgetError(f"{name} must be a positive number, got {form.get(name, '')!r}.")
    return value
