"""`sklar link`: measure a table of people and one of their events, fit a model, and draw both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sklar.cli.console import print_json, say, show_progress
from sklar.cli.fit import told
from sklar.cli.options import DELTA, JSON, NEIGHBORS, SEED, THREADS, FileOrAddress, number

if TYPE_CHECKING:
    from sklar.public.linked import Linked


@click.command(short_help="Release people and their events, one budget per person.")
@click.argument("people", type=FileOrAddress())
@click.argument("events", type=FileOrAddress())
@click.option(
    "--schema",
    "schema_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="S.toml",
    help="What is publicly known of both tables, with [people] and [events].",
)
@click.option("--epsilon", required=True, type=number, help="Privacy budget per person: smaller is more private.")
@DELTA
@click.option(
    "--neighbors",
    type=NEIGHBORS,
    default="replace-one",
    show_default=True,
    help="Whom the guarantee compares: tables that differ in all rows of one person (the number of people is public), "
    "or in one person's presence.",
)
@click.option(
    "--check",
    "check_first",
    is_flag=True,
    help="First tell how many events have no person or are too many for one. What it says is PRIVATE.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Charge this ledger before anything is measured; it refuses to overspend (see sklar ledger).",
)
@click.option(
    "--ledger-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The ledger's key, where it has one.  [default: SKLAR_LEDGER_KEY of the environment]",
)
@click.option("--dataset", metavar="NAME", help="Its name in the ledger.  [default: that of the table of people]")
@click.option("--people", "n_people", type=int, help="People to draw.  [default: as many as the original has]")
@SEED
@click.option(
    "--out", required=True, type=click.Path(), metavar="OUT.csv|.parquet", help="Where the synthetic people go."
)
@click.option(
    "--events-out", required=True, type=click.Path(), metavar="OUT.csv|.parquet", help="Where their events go."
)
@click.option(
    "--model",
    "model_path",
    type=click.Path(path_type=Path),
    metavar="OUT.sklar",
    help="Where the model goes.  [default: beside --out]",
)
@THREADS
@JSON
def link(
    *,
    people: Path | str,
    events: Path | str,
    schema_path: Path,
    epsilon: float,
    delta: float,
    neighbors: str,
    check_first: bool,
    ledger: Path | None,
    ledger_key: Path | None,
    dataset: str | None,
    n_people: int | None,
    seed: int | None,
    out: str,
    events_out: str,
    model_path: Path | None,
    as_json: bool,
) -> None:
    """Measure PEOPLE and their EVENTS once with noise, fit a model of both, and draw synthetic tables from it.

    The budget is for any one person, with all their events. Synthetic events carry the keys of synthetic people.

    \b
      sklar link patients.csv visits.csv --schema visits.toml --epsilon 1 --out p.csv --events-out v.csv
    """
    from sklar.budget.ledger import Ledger
    from sklar.draw.sample import check_draw
    from sklar.errors import BudgetError
    from sklar.files.write import SUFFIXES, check_target
    from sklar.kernel.theorems import Budget
    from sklar.public.linked import Linked
    from sklar.release import fit_linked

    if check_target(out, SUFFIXES).resolve() == check_target(events_out, SUFFIXES).resolve():
        raise click.UsageError("people and events need a file each: --out and --events-out name the same one.")
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    n_people, seed = check_draw(n_people, seed)
    if ledger_key is not None and ledger is None:
        raise BudgetError("a ledger's key was given, and no ledger. Give both.")
    book = None if ledger is None else Ledger(ledger, key=ledger_key)
    linked = Linked.load(schema_path)
    budget = Budget(epsilon=epsilon, delta=delta, neighbors=neighbors)  # type: ignore[arg-type]
    with show_progress() as progress:
        if check_first:
            _tell_links(people, events, linked)
        model = fit_linked(people, events, linked, budget, ledger=book, dataset=dataset, progress=progress)
        with told(model):
            # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
            model.save(model_path)
            model.write(out, events_out, n_people, seed=seed, progress=progress)
    with told(model):
        drawn = n_people or model.n_people
        if as_json:
            print_json(
                {
                    "people": drawn,
                    "seed": seed,
                    "out": out,
                    "events_out": events_out,
                    "model": model_path,
                    "certificate": model.certificate.to_dict(),
                    "settings": dict(model.settings),
                }
            )
            return
        for line in model.summary():
            say(line)
        say(f"{drawn:,} synthetic people in {out}, their events in {events_out} (seed {seed}).")
        say(f"The model is in {model_path}. More people cost no privacy:")
        say(f"sklar sample {model_path} --rows N --out FILE --events-out FILE")


def _tell_links(people: Path | str, events: Path | str, linked: Linked) -> None:
    from sklar.custodian.keys import check_links

    for line in check_links(people, events, linked).lines():
        click.echo(line, err=True)
