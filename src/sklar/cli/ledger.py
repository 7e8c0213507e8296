"""`sklar ledger`: keep count of what was spent on each data set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sklar.cli.console import is_quiet, print_figures, print_json, say, show_progress
from sklar.cli.options import JSON, NEIGHBORS, FileOrAddress, number

_FILE = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
_KEY = click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="The ledger's key.  [default: SKLAR_LEDGER_KEY of the environment]",
)


@click.group(short_help="Keep count of what was spent.")
def ledger() -> None:
    """Keep count of what was spent on each data set, and refuse to overspend."""


@ledger.command()
@_FILE
@click.option("--dataset", required=True, metavar="NAME", help="By default, releases look for the schema's table name.")
@click.option("--epsilon", required=True, type=number, help="Total for all releases together, set once.")
@click.option("--delta", type=number, default="2**-30", show_default=True, help="Total for all releases together.")
@click.option("--neighbors", type=NEIGHBORS, default="replace-one", show_default=True)
@click.option(
    "--unit",
    type=click.Choice(["row", "person"]),
    default="row",
    show_default=True,
    help="Whom the total is about; 'person' where the schema names one.",
)
@click.option(
    "--anchor",
    metavar="PLACE",
    help="A second place that remembers how far the ledger was, so that a restored backup is refused: a file, best on "
    "another file system, or postgresql://...",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="Sign all entries with this key, so that rewritten ones are refused; made for its owner alone where there is "
    "none.  [default: SKLAR_LEDGER_KEY of the environment]",
)
@click.option(
    "--data",
    type=FileOrAddress(),
    metavar="DATA",
    help="Bind the data set to the contents of this file or folder, and warn where they have another name already.",
)
@JSON
def init(
    *,
    path: Path,
    dataset: str,
    epsilon: float,
    delta: float,
    neighbors: Any,
    unit: Any,
    anchor: str | None,
    key: Path | None,
    data: Path | str | None,
    as_json: bool,
) -> None:
    """Give a data set its total budget in FILE, once; the file is made when there is none.

    \b
      sklar ledger init ledger.db --dataset adult --epsilon 3
      sklar ledger init ledger.db --dataset adult --epsilon 3 --anchor safe/anchor.db --key ledger.key
    """
    from sklar.budget.ledger import Ledger

    book = Ledger(path, key=key)
    digests = None if data is None else _digests(data)
    account = book.open_account(dataset, epsilon=epsilon, delta=delta, neighbors=neighbors, unit=unit, anchor=anchor)
    others = () if digests is None else book.bind(dataset, digests)
    _warn_of_names(dataset, others)
    _warn_of_place(path, anchor)
    if as_json:
        print_json(account.to_dict() | {"same_rows": others})
        return
    say(
        f"Data set '{account.dataset}' in {path}: epsilon = {account.epsilon:.6g}, delta = {account.delta:.3g} for all "
        f"releases together, for any one {account.unit} ({account.neighbors} neighbors)."
    )
    say(f"Release with: --ledger {path} --dataset {account.dataset}{'' if key is None else f' --ledger-key {key}'}")
    if anchor is None:
        for remark in book.standing().remarks:
            _remark(remark)


@ledger.command()
@_FILE
@_KEY
@JSON
def show(*, path: Path, key: Path | None, as_json: bool) -> None:
    """Show what each data set has spent and has left, and warn where FILE may not be the ledger in force.

    \b
      sklar ledger show ledger.db
    """
    from sklar.budget.ledger import Ledger

    book = Ledger(path, key=key)
    accounts = book.accounts()
    standing = book.standing()
    for problem in standing.problems:
        _warn(problem)
    for remark in standing.remarks:
        _remark(remark)
    if as_json:
        print_json([account.to_dict() for account in accounts])
        return
    for account in accounts:
        for line in account.lines():
            click.echo(line)
    say("Drawing more rows from a model that was paid for costs nothing.")


@ledger.command()
@_FILE
@_KEY
@JSON
def history(*, path: Path, key: Path | None, as_json: bool) -> None:
    """List every entry, oldest first.

    \b
      sklar ledger history ledger.db
    """
    from sklar.budget.ledger import Ledger

    entries = Ledger(path, key=key).history()
    if as_json:
        print_json([entry.to_dict() for entry in entries])
        return
    for entry in entries:
        click.echo(entry.line())


@ledger.command()
@_FILE
@click.argument("releases", metavar="[RELEASE]...", nargs=-1, type=click.Path(path_type=Path))
@_KEY
@JSON
def check(*, path: Path, releases: tuple[Path, ...], key: Path | None, as_json: bool) -> None:
    """Check FILE against its anchor and key, and that it paid for every RELEASE (a model file).

    Exit code 1 when FILE is older than a release or than its anchor, lacks a release, or was changed.

    \b
      sklar ledger check ledger.db
      sklar ledger check ledger.db adult.sklar
    """
    from sklar.budget.ledger import Ledger
    from sklar.budget.ledger.check import check_releases
    from sklar.files.archive import load

    book = Ledger(path, key=key)
    entries, standing = book.history(), book.standing()
    with show_progress() as progress:
        progress.stage("check", total=len(releases), unit="releases")
        measured = []
        for release in releases:
            measured.append((str(release), load(release).measured))
            progress.advance(1)
    found = check_releases(str(path), entries, standing.problems, measured)
    for remark in standing.remarks:
        _remark(remark)
    print_figures(found, as_json=as_json)
    if not found.passed:
        sys.exit(1)


@ledger.command()
@_FILE
@click.argument("data", type=FileOrAddress())
@click.option("--dataset", required=True, metavar="NAME", help="The data set whose rows these are.")
@_KEY
@JSON
def bind(*, path: Path, data: Path | str, dataset: str, key: Path | None, as_json: bool) -> None:
    """Bind a data set to the contents of its files, and warn where they have another name in FILE. PRIVATE.

    A keyed hash of every file of DATA is kept in the ledger. Rows that were sorted, cut or converted are not noticed.

    \b
      sklar ledger bind ledger.db adult.csv --dataset adult
    """
    from sklar.budget.ledger import Ledger

    digests = _digests(data)
    others = Ledger(path, key=key).bind(dataset, digests)
    _warn_of_names(dataset, others)
    if as_json:
        print_json({"dataset": dataset, "files": len(digests), "same_rows": others})
        return
    say(f"Data set '{dataset}' in {path} is bound to the contents of {len(digests):,} files.")


@ledger.command()
@_FILE
@click.argument("place")
@click.option("--lost", is_flag=True, help="The present anchor is gone: nothing tells whether FILE is complete.")
@_KEY
def anchor(*, path: Path, place: str, lost: bool, key: Path | None) -> None:
    """Name a second place that remembers how far FILE was, so that a restored backup of it is refused.

    PLACE is a file, best on another file system, or postgresql://... with rights to SELECT and INSERT.

    \b
      sklar ledger anchor ledger.db safe/anchor.db
    """
    from sklar.budget.ledger import Ledger

    Ledger(path, key=key).move_anchor(place, lost=lost)
    _warn_of_place(path, place)
    say(f"{path} is anchored at {place}. Keep backups of the two apart: restored together, nothing is noticed.")


@ledger.command()
@_FILE
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="Sign all entries with this key from now on; made for its owner alone where there is none.",
)
def upgrade(*, path: Path, key: Path | None) -> None:
    """Bring a ledger of an earlier version to the present one, or give a key to one that has none.

    \b
      sklar ledger upgrade ledger.db --key ledger.key
    """
    from sklar.budget.ledger import Ledger

    book = Ledger(path, key=key)
    book.upgrade()
    say(f"{path} is of the present version. Destroy copies from before, which know of no key and no anchor.")
    for remark in book.standing().remarks:
        _remark(remark)


@ledger.command()
@_FILE
@_KEY
def adopt(path: Path, key: Path | None) -> None:
    """Put a copied or restored FILE in force; make sure that no charge is missing from it.

    \b
      sklar ledger adopt ledger.db
    """
    from sklar.budget.ledger import Ledger

    Ledger(path, key=key).adopt()
    say(f"{path} is in force. No other copy of it may be charged from now on.")


def _digests(data: Path | str) -> tuple[bytes, ...]:
    from sklar.custodian.keys import hash_files

    with show_progress() as progress:
        return hash_files(data, progress=progress)


def _warn(text: str) -> None:
    click.echo(f"WARNING: {text}", err=True)


def _remark(text: str) -> None:
    if not is_quiet():
        click.echo(f"Note: {text}", err=True)


def _warn_of_names(dataset: str, others: tuple[str, ...]) -> None:
    if others:
        names = ", ".join(f"'{name}'" for name in others)
        _warn(
            f"data set '{dataset}' has files in common with {names}. The same people would lose each total: release "
            "under one name, and leave the other's total unspent. PRIVATE: this tells of the rows."
        )


def _warn_of_place(path: Path, place: str | None) -> None:
    if place is None or "://" in place:
        return
    if path.stat().st_dev == Path(place).stat().st_dev:
        _warn(f"{place} is on the same file system as {path}: a snapshot that is restored takes both back, unnoticed.")
