"""Step 7, books: the ledger, its history, the releases that it paid for, and how long the rest lasts."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sklar.budget.account import Account
from sklar.budget.ledger import Ledger
from sklar.budget.ledger.check import check_releases
from sklar.errors import SklarError
from sklar.files.archive import load
from sklar.studio.folder import LEDGER, Desk
from sklar.studio.pages.frame import Frame, Studio, frame, ledger_path, plain, releases, show


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """One data set of the ledger."""

    account: Account
    spent: str
    left: str
    share: float
    lasts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A release, and whether the ledger paid for it."""

    name: str
    epsilon: str
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The page."""

    frame: Frame
    there: bool
    problem: str
    books: tuple[Book, ...]
    history: tuple[tuple[str, str, str, str], ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    releases: bool


def books(studio: Studio, request: Request) -> Response:
    """All that the ledger says."""
    name = request.path_params.get("desk")
    desk = None if name is None else studio.folder.desk(name)
    path = ledger_path(studio)
    problem = ""
    shown: tuple[Book, ...] = ()
    history: tuple[tuple[str, str, str, str], ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    models = [model for each in studio.folder.desks() for model in _models(studio, each)]
    if path.exists():
        try:
            ledger = Ledger(path)
            entries, standing = ledger.history(), ledger.standing()
            now = dt.datetime.now(dt.UTC)
            shown = tuple(_book(account, now) for account in ledger.accounts())
            history = tuple(
                (str(each.number), each.time, each.dataset or "", each.line().split(": ", 1)[1]) for each in entries
            )
            problems, remarks = (
                tuple(plain(studio, line) for line in lines) for lines in (standing.problems, standing.remarks)
            )
        except SklarError as error:
            problem = plain(studio, str(error))
    view = Books(
        frame=frame(
            studio,
            request,
            title="Books",
            step="books",
            desk=desk,
            commands=(f"sklar ledger show {LEDGER}", " ".join(["sklar ledger check", LEDGER, *models])),
        ),
        there=path.exists(),
        problem=problem,
        books=shown,
        history=history,
        problems=problems,
        remarks=remarks,
        releases=bool(models) and path.exists(),
    )
    return show("books.html.j2", view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The releases of a folder."""

    made: tuple[Made, ...]


def paid(studio: Studio, _request: Request) -> Response:
    """Whether the ledger paid for every release, fetched after the page: every model is read for it."""
    entries = Ledger(ledger_path(studio)).history()
    names = [model for each in studio.folder.desks() for model in _models(studio, each)]
    models = [(name, load(studio.folder.inside(name)).measured) for name in names]
    found = check_releases(LEDGER, entries, (), models).releases
    made = tuple(
        Made(name=name, epsilon=f"{measured.certificate.epsilon:.4g}", problem=found[name]) for name, measured in models
    )
    return show("paid.html.j2", Releases(made=made))


def _models(studio: Studio, desk: Desk) -> list[str]:
    return [f"{desk.name}-{number}.sklar" for number in releases(studio.folder, desk)]


def _book(account: Account, now: dt.datetime) -> Book:
    until = account.lasts_until(now)
    return Book(
        account=account,
        spent=f"{account.spent:.4g}",
        left=f"{account.left:.4g}",
        share=min(account.spent / account.epsilon, 1.0),
        lasts="" if until is None else until.isoformat(),
    )
