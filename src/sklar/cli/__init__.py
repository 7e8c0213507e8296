"""The command line. Its modules import only click; what a command works with is imported when it runs.

So `sklar --help` waits for nothing. `options` holds what commands share, `console` how they print.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module

import click

from sklar.budget.receipt import charge_notes
from sklar.cli.console import plain
from sklar.cli.options import HELP
from sklar.machine.wording import explained

# Modules, with their commands.
COMMANDS = {
    "schema": ("schema",),
    "measuring": ("release", "fit"),
    "ledger": ("ledger",),
    "products": ("sample", "tables", "report", "publish", "verify", "sign"),
    "answers": ("forecast", "plan", "query", "infer"),
    "workshop": ("evaluate", "compare", "studio", "audit", "demo", "generate", "warm"),
}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help=HELP["sklar"],
    epilog=HELP["epilog"],
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="sklar", message="sklar %(version)s")
def cli(**_debug: bool) -> None:
    """Release differentially private synthetic versions of wide, sensitive tables."""


for _module, _names in COMMANDS.items():
    for _name in _names:
        cli.add_command(getattr(import_module(f"sklar.cli.{_module}"), _name))


def main() -> None:
    """Run the command line; every failure is one line and an exit code."""
    atexit.register(_leave)
    sys.unraisablehook = _report_unless_interrupted
    try:
        _run()
        # A closed pipe is noticed here, and not at exit, where Python would print a traceback.
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except click.ClickException as error:
        vars(error)["message"] = plain(error.message)
        error.show()
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        stopped = isinstance(error, click.Abort | KeyboardInterrupt)
        told = explained(KeyboardInterrupt() if stopped else error)
        click.echo(plain(" ".join([f"sklar: {told}", *charge_notes(error)])), err=True)
        sys.exit(130 if stopped else 1)


def _report_unless_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    # An interruption may fall into the clean-up of an object, where Python can only print it: it is reported by us.
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _leave() -> None:
    # The last garbage collection takes longer than --help does. DuckDB prints what is left of it then, on the file
    # behind standard error, whether or not it is cleaned up; nobody else prints after this handler.
    if "duckdb" not in sys.modules:
        gc.freeze()
        return
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _run() -> None:
    # Not cli.main: that exits with 1 when the output pipe is closed.
    completing = os.environ.get("_SKLAR_COMPLETE")
    if completing:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "sklar", "_SKLAR_COMPLETE", completing))
    with cli.make_context("sklar", sys.argv[1:]) as context:
        cli.invoke(context)
