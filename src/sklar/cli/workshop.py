"""The custodian's own tools: `sklar evaluate` and `studio`, `audit`, `demo`, `generate` and `warm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sklar.cli import options as shared
from sklar.cli.console import JSON, TIMINGS, finish, is_given, print_figures, say, show_progress, watched
from sklar.cli.options import HELP, MANY, OUT, PATH, SCHEMA, WRITTEN, command, flag, number, option


@command("Compare with the real rows: private.", TIMINGS)
@click.argument("real", type=PATH)
@click.argument("synthetic", type=PATH)
@SCHEMA
@JSON
@shared.written("--report", "PRIVATE.html", HELP["--report"])
@option("--target", "An attribute to predict: each table trains a model, and --test tests both.")
@option("--test", "Real rows kept apart: one end of the score, and for --target.", PATH)
def evaluate(*, real: Path, synthetic: Path, schema_path: Path, **how: Any) -> None:
    """Compare SYNTHETIC with the REAL rows, for the custodian's eyes only. Linked tables are folders, or databases."""
    from sklar.custodian.evaluate import evaluate as compare

    print_figures(watched(compare, real, synthetic, schema_path, **how))
    _say_private(how["report"])


def _say_private(made: Path | None) -> None:
    if made is not None and not is_given("json"):
        say(f"PRIVATE as well: {made}")
        if "PRIVATE" not in made.name:
            say(f"Its name does not say so: consider {made.with_name(f'PRIVATE-{made.name}')}.")


@command("An analysis of real rows beside infer's: private.", JSON)
@click.argument("real", type=PATH)
@shared.MODEL
@click.argument("question")
@option("--level", "Coverage of the confidence intervals.", number, default="0.95")
@option("--seed", "Draws the synthetic rows.", int, default=0)
@shared.written("--plot", "PRIVATE.png", "Draw the intervals; private as well.")
def compare(*, real: Path, model_path: Path, question: str, plot: Path | None, **options: Any) -> None:
    """Answer QUESTION of the REAL rows, of synthetic rows as if they were real, and by sklar infer, side by side."""
    from sklar.custodian.compare import compare as side_by_side

    print_figures(side_by_side(real, model_path, question, plot=plot, **options))
    _say_private(plot)


@command("All steps, in your browser.")
@click.argument("folder", default=".", type=WRITTEN)
@option("--port", "Where to listen.  [default: a free port]", click.IntRange(0, 65535))
@option("--browser/--no-browser", "Open the browser.", default=True)
@option("--host", HELP["--host"], default="127.0.0.1", metavar="ADDRESS")
@flag("--beyond-this-machine", HELP["--beyond-this-machine"], to="beyond")
def studio(*, folder: Path, port: int | None, browser: bool, host: str, beyond: bool) -> None:
    """Open, describe, plan, release, look, publish and keep the books of tables in FOLDER, in your browser."""
    import threading
    import webbrowser
    from shutil import rmtree
    from tempfile import mkdtemp

    from sklar.files.write import write_text
    from sklar.machine.extras import require

    for module in ("starlette", "uvicorn"):
        require(module, what="the studio", package=module, extra="studio")
    from sklar.studio.serve import serve

    pages = Path(mkdtemp())

    def ready(address: str) -> None:
        # Always printed: without it nobody gets in.
        click.echo(address)
        say("Open this address; it works once, for one browser. Ctrl-C ends the studio; work that runs goes on.")
        if browser:
            # Not the address: other users can read the arguments of a browser's process. A moment later, when the
            # server answers.
            write_text(
                page := pages / "studio.html", f'<meta http-equiv="refresh" content="0;url={address}">', private=True
            )
            later = threading.Timer(0.5, webbrowser.open, (page.as_uri(),))
            later.daemon = True
            later.start()

    try:
        serve(folder, host=host, port=port or 0, beyond=beyond, ready=ready)
    finally:
        rmtree(pages)


@command("Try to break the guarantee, on invented data.", JSON)
@flag("--quick", "About a minute; the full audit has more trials and so sees more.")
def audit(*, quick: bool) -> None:
    """Try to break the privacy of this installation, on invented tables, from a file to a model."""
    from sklar.trust.audit import audit as attack

    result = watched(attack, quick=quick)
    print_figures(result, code=int(not result.passed))


@command("Release a generated table and show it.", JSON, TIMINGS)
@option("--out", "Folder to fill.", WRITTEN, default="sklar-demo")
@option("--rows", "Rows of the generated table.", MANY, default=30_000)
@option("--epsilon", "Privacy budget.", number, default="1")
def demo(*, out: Path, rows: int, epsilon: float) -> None:
    """Generate a census-like table, release it, and show what came out."""
    from sklar.custodian.demo import run

    shown = watched(run, out, rows=rows, epsilon=epsilon)
    finish(shown.to_dict(), *shown.lines())


@command("Generate a test table and its schema.", JSON, TIMINGS)
@click.argument("shape", type=click.Choice(["census", "census-linked", "hospital", "dss", "syn1", "syn2", "visits"]))
@option("--rows", HELP["generate --rows"], MANY)
@option("--seed", "Another seed, another table.", int, default=0)
@OUT
@shared.written("--schema", "S.toml", "Where its public schema goes.", to="schema_path", required=True)
@shared.KIND
def generate(*, shape: str, rows: int | None, seed: int, out: str, schema_path: Path, kind: str) -> None:
    """Generate a test table of a given SHAPE, with its schema: nothing in it is about anyone."""
    from sklar.files.write import SUFFIXES, check_target, write_frames, write_text
    from sklar.generate import SHAPES, schema_toml
    from sklar.generate import generate as make
    from sklar.machine.progress import watch
    from sklar.public.schema import Schema

    check_target(schema_path, (".toml",))
    if shape == "visits":
        _generate_visits(rows, seed, out, schema_path, kind)
        return
    target = check_target(out, SUFFIXES)
    columns, frames = make(shape, rows=rows, seed=seed)
    rows = rows or SHAPES[shape].rows
    with show_progress() as progress:
        progress.stage("generate", total=rows, unit="rows")
        write_frames(target, columns, watch(frames, progress), Schema.from_toml(schema_toml(shape)))
    write_text(schema_path, schema_toml(shape))
    finish(
        {"shape": shape, "rows": rows, "seed": seed, "out": out, "schema": schema_path},
        f"{rows:,} rows of {SHAPES[shape].description} in {out}, the schema in {schema_path}.",
    )


def _generate_visits(patients: int | None, seed: int, out: str, schema_path: Path, kind: str) -> None:
    """Linked tables, and the schema of all."""
    from sklar.draw.sample import tree_columns
    from sklar.files.write import check_tables, write_tables, write_text
    from sklar.generate.visits import PATIENTS, generate_visits, hospital

    target, tree, patients = check_tables(out, kind), hospital(), PATIENTS if patients is None else patients
    with show_progress() as progress:
        progress.stage("generate")
        columns = tree_columns(tree)
        write_tables(target, tree, columns, generate_visits(patients, seed=seed), shown=columns, kind=kind)
    write_text(schema_path, tree.to_toml())
    tables = ", ".join(columns)
    finish(
        {"shape": "visits", "patients": patients, "seed": seed, "out": out, "schema": schema_path},
        f"{patients:,} patients with all their rows in {out} ({tables}), the schema of all in {schema_path}.",
    )


@command("Compile for this machine, now.")
def warm() -> None:
    """Compile all inner loops for this machine, into the cache of the user who runs this."""
    from sklar.machine import compiled

    with show_progress() as progress:
        for module, what in compiled.KERNELS.items():
            progress.stage(f"compile {what}")
            compiled.load(module)
    say(f"Compiled for this machine: {len(compiled.KERNELS)} parts, kept in {compiled.cache_folder() or 'no folder'}.")
