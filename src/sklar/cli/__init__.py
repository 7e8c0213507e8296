"""The command line. Exit codes: 0 done, 1 not carried out or a check failed, 2 not understood, 130 interrupted, 141 the
reader of its output went away.

One file per command. It imports only click; what the command works with is imported when it runs, so that
`sklar --help` waits for nothing. `options` holds the options that several commands share, `console` how they print.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

import click

from sklar.budget.receipt import charge_notes
from sklar.cli.audit import audit
from sklar.cli.completion import completion
from sklar.cli.console import quiet_option, timings_option
from sklar.cli.demo import demo
from sklar.cli.evaluate import evaluate
from sklar.cli.fit import fit
from sklar.cli.forecast import forecast
from sklar.cli.generate import generate
from sklar.cli.infer import infer
from sklar.cli.ledger import ledger
from sklar.cli.link import link
from sklar.cli.plan import plan
from sklar.cli.publish import publish
from sklar.cli.query import query
from sklar.cli.release import release
from sklar.cli.report import report
from sklar.cli.sample import sample
from sklar.cli.schema import schema
from sklar.cli.sign import sign
from sklar.cli.studio import studio
from sklar.cli.tables import tables
from sklar.cli.verify import verify
from sklar.cli.warm import warm
from sklar.errors import SklarError

_EPILOG = """\b
Exit codes:
  0    done
  1    the request could not be carried out, or a check failed (verify, audit); one line says why
  2    the command line was not understood
  130  interrupted (Ctrl-C); no file is left half-written
  141  whoever read the output went away (a pipe was closed)
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_EPILOG)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="sklar", message="sklar %(version)s")
def cli(**_debug: bool) -> None:
    """Release differentially private synthetic versions of wide, sensitive tables.

    Write a schema from public knowledge, run one command, get a synthetic table and a model file.

    \b
      sklar release adult.csv --schema adult.toml --epsilon 1 --out synthetic.csv
      sklar demo
    """


_PUBLIC_KNOWLEDGE = (schema, forecast, plan)
_SPENDING = (release, link, fit, ledger)
_FROM_A_MODEL = (sample, tables, query, infer, report, publish, verify, sign)
_FOR_THE_CUSTODIAN = (evaluate, studio)
_TO_TRY = (audit, completion, demo, generate, warm)

for _command in (*_PUBLIC_KNOWLEDGE, *_SPENDING, *_FROM_A_MODEL, *_FOR_THE_CUSTODIAN, *_TO_TRY):
    cli.add_command(_command)
    for _each in _command.commands.values() if isinstance(_command, click.Group) else (_command,):
        _each.params.append(quiet_option())
for _command in (
    release,
    link,
    fit,
    sample,
    evaluate,
    demo,
    generate,
    schema.commands["draft"],
    schema.commands["check"],
):
    _command.params.append(timings_option())


def main() -> None:
    """Run the command line; every failure is one line and an exit code."""
    atexit.register(_leave)
    sys.unraisablehook = _tell_unless_interrupted
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
        error.show()
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        click.echo(" ".join([f"sklar: {_explain(error)}", *charge_notes(error)]), err=True)
        sys.exit(130 if isinstance(error, click.Abort | KeyboardInterrupt) else 1)


def _tell_unless_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    # An interruption may fall into the clean-up of an object, where Python can only print it: it is told once, by us.
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _leave() -> None:
    # At the end of the process nothing is searched for garbage again: that takes longer than --help does. DuckDB prints
    # what is left of it then, on the file behind standard error, whether or not it is cleaned up. Nobody else says
    # anything any more: this runs after all other handlers.
    if "duckdb" not in sys.modules:
        gc.freeze()
        return
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _run() -> None:
    # Not cli.main: that exits with 1 when the reader of the output goes away.
    completing = os.environ.get("_SKLAR_COMPLETE")
    if completing:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "sklar", "_SKLAR_COMPLETE", completing))
    with cli.make_context("sklar", sys.argv[1:]) as context:
        cli.invoke(context)


def _explain(error: BaseException) -> str:
    if isinstance(error, SklarError):
        return str(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted. No file was left half-written."
    if isinstance(error, MemoryError):
        return "out of memory. Use a schema with fewer levels, or a larger machine."
    # The text of an unforeseen error might quote a row.
    return f"unexpected {type(error).__name__}. Run sklar --debug with the same command to see where."
