"""Step 7, books: the ledger, its history, the releases that it paid for, and how long the rest lasts."""

from __future__ import annotations

import datetime as dt
from typing import Any

from starlette.responses import Response

from sklar.budget.account import Account
from sklar.budget.ledger import Ledger, check_releases
from sklar.errors import SklarError
from sklar.files.archive import load
from sklar.studio.folder import LEDGER, Folder
from sklar.studio.pages.visit import Visit, show


def books(visit: Visit) -> Response:
    """All that the ledger says."""
    there, models = visit.folder.ledger.exists(), _models(visit.folder)
    values: dict[str, Any] = {"problem": "", "books": [], "history": [], "problems": [], "remarks": []}
    if there:
        try:
            ledger = Ledger(visit.folder.ledger)
            entries, standing, now = ledger.history(), ledger.standing(), dt.datetime.now(dt.UTC)
            values |= {
                "books": [_book(account, now) for account in ledger.accounts()],
                "history": [
                    (each.number, each.time, each.dataset or "", each.line().split(": ", 1)[1]) for each in entries
                ],
                "problems": [visit.plain(line) for line in standing.problems],
                "remarks": [visit.plain(line) for line in standing.remarks],
            }
        except SklarError as error:
            values["problem"] = visit.plain(str(error))
    commands = (f"sklar ledger show {LEDGER}", " ".join(["sklar ledger check", LEDGER, *models]))
    releases = bool(models) and there
    return visit.page("books.html.j2", "Books", "books", commands=commands, there=there, releases=releases, **values)


def paid(visit: Visit) -> Response:
    """Whether the ledger paid for every release, fetched after the page: every model is read for it."""
    entries = Ledger(visit.folder.ledger).history()
    models = [(name, load(visit.folder.inside(name)).measured) for name in _models(visit.folder)]
    problems = check_releases(LEDGER, entries, (), models).releases
    made = [(name, f"{measured.certificate.epsilon:.4g}", problems[name]) for name, measured in models]
    return show("paid.html.j2", made=made)


def _models(folder: Folder) -> list[str]:
    return [f"{desk.name}-{number}.sklar" for desk in folder.desks() for number in folder.releases(desk)]


def _book(account: Account, now: dt.datetime) -> dict[str, Any]:
    until = account.lasts_until(now)
    return {
        "account": account,
        "spent": f"{account.spent:.4g}",
        "left": f"{account.left:.4g}",
        "share": min(account.spent / account.epsilon, 1.0),
        "lasts": "" if until is None else until.isoformat(),
    }
