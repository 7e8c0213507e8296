"""`sklar ledger`: keep count of what was spent on each data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, finish, is_given, print_answer, print_figures, say, show_progress, warn, watched
from sklar.cli.options import HELP, PATH, command, neighbors_option, number, option, path
from sklar.machine.wording import said

if TYPE_CHECKING:
    from sklar.budget.ledger import Ledger

_FILE = click.argument("file", type=PATH)
_KEY = path("--key", "KEYFILE", "The ledger's key.  [default: SKLAR_LEDGER_KEY of the environment]")


@click.group(short_help="Keep count of what was spent.")
def ledger() -> None:
    """Keep count of what was spent on each data set, and refuse to overspend."""


@command(None, JSON, of=ledger)
@_FILE
@option("--dataset", "By default, releases look for the schema's table name.", required=True, metavar="NAME")
@option("--epsilon", "Total for all releases together, set once.", number, required=True)
@option("--delta", "Total for all releases together.", number, default="2**-30")
@neighbors_option()
@shared.choice("--unit", "row person", "Whom the total is about; 'person' where the schema names one.", default="row")
@option("--anchor", HELP["--anchor"], metavar="PLACE")
@path("--key", "KEYFILE", HELP["ledger init --key"])
@option("--data", HELP["--data"], shared.FileOrAddress(), metavar="DATA")
def init(*, file: Path, dataset: str, key: Path | None, data: Path | str | None, **terms: Any) -> None:
    """Give a data set its total budget in FILE, once; the file is made when there is none."""
    book = _open(file, key)
    digests = None if data is None else _digests(data)
    account = book.open_account(dataset, **terms)
    others = () if digests is None else book.bind(dataset, digests)
    _warn_of_names(dataset, others)
    _warn_of_place(file, terms["anchor"])
    finish(
        account.to_dict() | {"same_rows": others},
        said("cli.opened", of=account, file=file),
        f"Release with: --ledger {file} --dataset {account.dataset}{'' if key is None else f' --ledger-key {key}'}",
    )
    if terms["anchor"] is None and not is_given("json"):
        _remark(book.standing().remarks)


@command(None, _KEY, JSON, of=ledger)
@_FILE
def show(*, file: Path, key: Path | None) -> None:
    """Show what each data set has spent and has left, and warn where FILE may not be the ledger in force."""
    book = _open(file, key)
    accounts, standing = book.accounts(), book.standing()
    for problem in standing.problems:
        warn(problem)
    _remark(standing.remarks)
    lines = [line for account in accounts for line in account.lines()]
    after = "Drawing more rows from a model that was paid for costs nothing."
    print_answer([account.to_dict() for account in accounts], lines, after)


@command(None, _KEY, JSON, of=ledger)
@_FILE
def history(*, file: Path, key: Path | None) -> None:
    """List every entry, oldest first."""
    entries = _open(file, key).history()
    print_answer([entry.to_dict() for entry in entries], [entry.line() for entry in entries])


@command(None, _KEY, JSON, of=ledger)
@_FILE
@click.argument("releases", metavar="[RELEASE]...", nargs=-1, type=PATH)
def check(*, file: Path, releases: tuple[Path, ...], key: Path | None) -> None:
    """Check FILE against its anchor and key, and that it paid for every RELEASE (a model file)."""
    from sklar.budget.ledger import check_releases
    from sklar.files.archive import load

    book = _open(file, key)
    entries, standing = book.history(), book.standing()
    with show_progress() as progress:
        progress.stage("check", total=len(releases), unit="releases")
        measured = []
        for release in releases:
            measured.append((str(release), load(release).measured))
            progress.advance(1)
    result = check_releases(str(file), entries, standing.problems, measured)
    _remark(standing.remarks)
    print_figures(result, code=int(not result.passed))


@command(None, _KEY, JSON, of=ledger)
@_FILE
@shared.DATA
@option("--dataset", "The data set whose rows these are.", required=True, metavar="NAME")
def bind(*, file: Path, data: Path | str, dataset: str, key: Path | None) -> None:
    """Bind a data set to the contents of its files, and warn where they have another name in FILE. PRIVATE."""
    digests = _digests(data)
    others = _open(file, key).bind(dataset, digests)
    _warn_of_names(dataset, others)
    finish(
        {"dataset": dataset, "files": len(digests), "same_rows": others},
        f"Data set '{dataset}' in {file} is bound to the contents of {len(digests):,} files.",
    )


@command(None, _KEY, of=ledger)
@_FILE
@click.argument("place")
@shared.flag("--lost", "The present anchor is gone: nothing tells whether FILE is complete.")
def anchor(*, file: Path, place: str, lost: bool, key: Path | None) -> None:
    """Name a second place that remembers how far FILE was, so that a restored backup of it is refused."""
    _open(file, key).move_anchor(place, lost=lost)
    _warn_of_place(file, place)
    say(f"{file} is anchored at {place}. Keep backups of the two apart: restored together, nothing is noticed.")


@command(None, of=ledger)
@_FILE
@path("--key", "KEYFILE", "Sign all entries with this key from now on; made for its owner alone where there is none.")
def upgrade(*, file: Path, key: Path | None) -> None:
    """Give a key to a ledger that has none."""
    book = _open(file, key)
    book.upgrade()
    say(f"{file} has its key. Destroy copies from before, which know of none.")
    _remark(book.standing().remarks)


@command(None, _KEY, of=ledger)
@_FILE
def adopt(*, file: Path, key: Path | None) -> None:
    """Put a copied or restored FILE in force; make sure that no charge is missing from it."""
    _open(file, key).adopt()
    say(f"{file} is in force. No other copy of it may be charged from now on.")


def _open(file: Path, key: Path | None) -> Ledger:
    from sklar.budget.ledger import Ledger

    return Ledger(file, key=key)


def _digests(data: Path | str) -> tuple[bytes, ...]:
    from sklar.custodian.check import hash_files

    return watched(hash_files, data)


def _remark(remarks: tuple[str, ...]) -> None:
    for remark in () if is_given("quiet") else remarks:
        warn(remark, "Note")


def _warn_of_names(dataset: str, others: tuple[str, ...]) -> None:
    if others:
        names = ", ".join(f"'{name}'" for name in others)
        warn(said("cli.same_rows", dataset=dataset, names=names))


def _warn_of_place(file: Path, place: str | None) -> None:
    if place is not None and "://" not in place and file.stat().st_dev == Path(place).stat().st_dev:
        warn(f"{place} is on the same file system as {file}: a snapshot that is restored takes both back, unnoticed.")
