"""Step 3, plan: what an epsilon buys and promises, what the ledger has left, and the total that is set once."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from sklar.answer.report import svg
from sklar.answer.report.render import bound, percent
from sklar.answer.wants import read_want
from sklar.budget.account import Account, choose_accountant
from sklar.budget.certificate import rounded_up
from sklar.budget.forecast import TWICE, Forecast, band, supports, with_few, within
from sklar.budget.ledger import Ledger
from sklar.budget.risk import risk_at
from sklar.errors import BudgetError, LedgerError, SchemaError, SklarError
from sklar.machine.wording import said
from sklar.public.schema import Schema
from sklar.studio.folder import LEDGER, Desk
from sklar.studio.pages.cost import DELTA, foresee, remedy
from sklar.studio.pages.visit import Visit, go, show

# Where the slider stands: from hardly any budget to hardly a promise, in steps that look even.
EPSILONS = (
    *(0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 1.75),
    *(2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
)
_TOTAL = 3.0
# Shares of an invented column, whose error bars a plan shows.
_INVENTED = (0.34, 0.25, 0.17, 0.11, 0.08, 0.05)


def plan(visit: Visit) -> Response:
    """The slider, what it buys, and the books."""
    desk = visit.desk
    if visit.text is None or desk.rows is None:
        return go(visit.address("open"))
    schema, account, problem = visit.schema, *account_of(visit)
    if schema.ask_person:
        return visit.tell(visit.address("describe"), said("studio.who_first"), form={})
    typed = {} if visit.note is None else visit.note.form
    epsilon, unit = desk.epsilon, unit_of(schema)
    # What was typed, where it is one: the field and the figures are of the same.
    with suppress(BudgetError):
        epsilon = _number(typed.get("epsilon") or visit.query("epsilon"))
    about = f"--schema {visit.schema_path} --rows {desk.rows} --epsilon {epsilon:g}"
    commands = [f"sklar forecast {about}"]
    if desk.goals:
        commands.append(f"sklar plan {about}" + "".join(f" --want {shlex.quote(goal)}" for goal in desk.goals))
    if account is None or not account.charges:
        total = _TOTAL if account is None else account.epsilon
        person = "" if unit == "row" else " --unit person"
        commands.append(f"sklar ledger init {LEDGER} --dataset {shlex.quote(schema.name)} --epsilon {total:g}{person}")
    return visit.page(
        "plan.html.j2",
        "Plan the budget",
        "plan",
        commands=tuple(commands),
        rows=desk.rows,
        waiting=len(schema.not_reviewed),
        epsilons=EPSILONS,
        place=min(range(len(EPSILONS)), key=lambda at: abs(math.log(EPSILONS[at] / epsilon))),
        bought=bought_by(schema, epsilon, desk, account),
        account=account,
        ledger_problem=problem,
        total=typed.get("total", f"{_TOTAL:g}"),
        unit=unit,
        typed=typed.get("want", ""),
    )


def unit_of(schema: Schema) -> str:
    """Whom the promise is about."""
    return "row" if schema.person is None else "person"


def account_of(visit: Visit) -> tuple[Account | None, str]:
    """The data set's account in the folder's ledger; None where there is none, with what is wrong if anything is."""
    if not visit.folder.ledger.exists():
        return None, ""
    try:
        accounts = Ledger(visit.folder.ledger).accounts()
    except LedgerError as error:
        return None, str(error)
    account = next((each for each in accounts if each.dataset == visit.schema.name), None)
    if account is not None and account.unit != (unit := unit_of(visit.schema)):
        facts = {"dataset": account.dataset, "own": account.unit, "unit": unit, "schema": visit.desk.schema}
        return None, said("studio.other_unit", **facts)
    return account, ""


def bought_by(schema: Schema, epsilon: float, desk: Desk, account: Account | None) -> dict[str, Any]:
    """What one epsilon buys, in figures and words: in the worst case, and if searches find few categories."""
    cases = [foresee(each, epsilon, desk.rows or 1) for each in (schema, with_few(schema))]
    worst, likely = (each.forecast for each in cases)
    n, m = worst.n_rows, worst.schema.n_attributes

    return {
        "epsilon": epsilon,
        "refused": worst.refused,
        "likely": "none" if worst.refused else likely.support,
        "words": supports(worst, likely),
        "remedy": "" if likely.support == "two" else remedy(schema, epsilon, n),
        "rows": n,
        "counted": "people" if schema.person is not None and schema.person.count == "people" else "rows",
        "one_way": band([each.one_way_error for each in (worst, likely)]),
        "pair": band([each.pair_error for each in (worst, likely)]),
        # Sums over pairs are not used for columns without missing and other values.
        "bare": bool(worst.pair_sd.size) and worst.one_way_error > worst.pair_error,
        "noisy": band([each.forecast.noisy.size for each in cases], "{:,.0f}".format),
        "pairs": m * (m - 1) // 2,
        "noisiest": [f"{one} x {other}" for one, other in cases[0].noisiest],
        "preview": [
            _invented(columns, error, n) for columns, error in ((1, likely.one_way_error), (2, likely.pair_error))
        ],
        "split": [(name, 100 * share, percent(share)) for name, share in worst.split],
        "promise": promise(epsilon, unit_of(schema)),
        "fits": account is None or choose_accountant(account, worst.budget, worst.spend) is not None,
        "left": "" if account is None else f"{account.left:.4g}",
        "goals": [_goal(number, goal, schema, worst) for number, goal in enumerate(desk.goals)],
    }


def _invented(columns: int, error: float, rows: int) -> Markup:
    """A chart of invented counts of one column, or of the half of each that a second one leaves, with error bars."""
    half, entries = TWICE * error / rows, []
    for at, share in enumerate(_INVENTED):
        part = share / columns
        entries.append(svg.Bar(f"value {at + 1}", part, part - half, part + half, part, f"{part * rows:,.0f}"))
    title = f"Invented counts of {columns} column{'s'[: columns - 1]}, with the error bars of this plan"
    step = svg.rounded(0.15 * rows)
    marks = tuple((at * step / rows, f"{at * step:,.15g}") for at in range(4))
    return svg.bars(entries, title, f"each {within(error)} rows", marks=marks)


def _goal(number: int, text: str, schema: Schema, forecast: Forecast) -> dict[str, Any]:
    """A question with its margin, as `sklar plan` reads it, and the smallest epsilon of the slider that answers it."""
    rows = forecast.n_rows
    try:
        want = read_want(text, schema, rows)
    except SklarError as error:
        return {"number": number, "text": text, "met": False, "error": str(error), "needs": ""}
    reach = want.reach(forecast)
    needs = next((each for each in EPSILONS if want.is_met(foresee(schema, each, rows).forecast)), None)
    return {
        "number": number,
        "text": want.text,
        "met": want.is_met(forecast),
        "error": f"±{percent(reach / rows)} of the rows",
        "needs": "no epsilon up to 10 suffices" if needs is None else f"epsilon {needs:g} suffices",
    }


def set_goals(visit: Visit) -> Response:
    """Add a question that the release must answer, or take one away."""
    desk, form = visit.desk, visit.form
    visit.back = here = f"{visit.address('plan', epsilon=form.get('epsilon', ''))}#goals"
    goals = list(desk.goals)
    if form.get("remove", "").isdigit():
        goals = [goal for number, goal in enumerate(goals) if number != int(form["remove"])]
    else:
        goals.append(form.get("want", "").strip())
        read_want(goals[-1], visit.schema, desk.rows or 1)
    visit.folder.save(desk, goals=goals)
    return go(here)


def promise(epsilon: float, unit: str) -> tuple[str, ...]:
    """What an epsilon promises to any one row or person, in plain words."""
    times = f"{float(rounded_up(math.exp(min(epsilon, 700.0)), 3)):,.12g}"
    _, guess = risk_at(epsilon, DELTA, curved=True).right(1)
    facts = {"unit": unit, "times": times, "guess": bound(guess), "among": math.floor(1 / DELTA)}
    return tuple(said("studio.promise", **facts).splitlines())


def forecast(visit: Visit) -> Response:
    """What another epsilon would buy: for the script, as the slider moves."""
    epsilon = _number(visit.query("epsilon"))
    return show("bought.html.j2", bought=bought_by(visit.schema, epsilon, visit.desk, account_of(visit)[0]))


def choose(visit: Visit) -> Response:
    """Keep the plan; and set the data set's total, where none is set yet."""
    visit.back = visit.address("plan")
    schema, epsilon = visit.schema, _number(visit.form.get("epsilon", ""))
    if schema.ask_person:
        raise SchemaError(said("studio.who_first"))
    account, problem = account_of(visit)
    if problem:
        raise LedgerError(problem)
    if account is None:
        total = _number(visit.form.get("total", ""), "the total")
        if total < epsilon:
            raise BudgetError(f"the total must be at least this release's epsilon={epsilon:g}, got {total:g}.")
        unit = unit_of(schema)
        Ledger(visit.folder.ledger).open_account(schema.name, epsilon=total, delta=DELTA, unit=unit)  # type: ignore[arg-type]
    visit.folder.save(visit.desk, epsilon=epsilon, target="planned")
    return go(visit.address("release"))


def _number(text: str, name: str = "epsilon") -> float:
    with suppress(ValueError):
        if EPSILONS[0] / 100 <= (value := float(text)) <= 100 * EPSILONS[-1]:
            return value
    raise BudgetError(f"{name} must be a number from 0.001 to 1000, got {text!r}.")
