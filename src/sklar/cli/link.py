"""`sklar link`: measure a table of people and one of their events, fit a model, and draw both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, TIMINGS, finish, show_progress
from sklar.cli.fit import told


@click.command(short_help="Release people and their events, one budget per person.")
@click.argument("people", type=shared.FileOrAddress())
@click.argument("events", type=shared.FileOrAddress())
@shared.path(
    "--schema",
    "S.toml",
    "What is publicly known of both tables, with [people] and [events].",
    to="schema_path",
    required=True,
)
@click.option(
    "--epsilon", required=True, type=shared.number, help="Privacy budget per person: smaller is more private."
)
@shared.DELTA
@shared.neighbors_option(
    "Whom the guarantee compares: tables that differ in all rows of one person (the number of people is public), or in "
    "one person's presence."
)
@shared.flag(
    "--check",
    "First tell how many events have no person or are too many for one. What it says is PRIVATE.",
    to="check_first",
)
@shared.ledger_options(name="that of the table of people")
@click.option("--people", "n_people", type=int, help="People to draw.  [default: as many as the original has]")
@shared.SEED
@shared.rows_out(text="Where the synthetic people go.")
@shared.rows_out("--events-out", "Where their events go.")
@shared.MODEL_OUT
@shared.THREADS
@JSON
@TIMINGS
def link(
    *,
    people: Path | str,
    events: Path | str,
    schema_path: Path,
    check_first: bool,
    dataset: str | None,
    n_people: int | None,
    seed: int | None,
    out: str,
    events_out: str,
    model_path: Path | None,
    **options: Any,
) -> None:
    """Measure PEOPLE and their EVENTS once with noise, fit a model of both, and draw synthetic tables from it.

    The budget is for any one person, with all their events. Synthetic events carry the keys of synthetic people.

    \b
      sklar link patients.csv visits.csv --schema visits.toml --epsilon 1 --out p.csv --events-out v.csv
    """
    from sklar.draw.sample import check_draw
    from sklar.files.write import SUFFIXES, check_target
    from sklar.kernel.theorems import Budget
    from sklar.public.events import Linked
    from sklar.release import fit_linked

    if check_target(out, SUFFIXES).resolve() == check_target(events_out, SUFFIXES).resolve():
        raise click.UsageError("people and events need a file each: --out and --events-out name the same one.")
    model_path = check_target(model_path or Path(out).with_suffix(".sklar"), (".sklar",))
    n_people, seed = check_draw(n_people, seed)
    book = shared.open_ledger(options["ledger"], options["ledger_key"])
    linked = Linked.load(schema_path)
    budget = Budget(**{name: options[name] for name in ("epsilon", "delta", "neighbors")})
    with show_progress() as progress:
        if check_first:
            from sklar.custodian.check import check_links

            for line in check_links(people, events, linked).lines():
                click.echo(line, err=True)
        model = fit_linked(people, events, linked, budget, ledger=book, dataset=dataset, progress=progress)
        with told(model):
            # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
            model.save(model_path)
            model.write(out, events_out, n_people, seed=seed, progress=progress)
    with told(model):
        drawn = n_people or model.n_people
        written = {"people": drawn, "seed": seed, "out": out, "events_out": events_out, "model": model_path}
        finish(
            written | {"certificate": model.certificate.to_dict(), "settings": dict(model.settings)},
            *model.summary(),
            f"{drawn:,} synthetic people in {out}, their events in {events_out} (seed {seed}).",
            f"The model is in {model_path}. More people cost no privacy:",
            f"sklar sample {model_path} --rows N --out FILE --events-out FILE",
        )
