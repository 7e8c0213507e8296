"""The command line. Exit codes: 0 done, 1 the request could not be carried out, 2 the command was not understood.

One file per group of commands. They import only click; what a command works with is imported when it runs, so that
`sklar --help` waits for nothing.
"""

from __future__ import annotations

import sys

import click

from sklar.cli.answers import forecast, query, report
from sklar.cli.judge import evaluate
from sklar.cli.release import fit, release, sample, tables
from sklar.cli.schema import schema
from sklar.cli.trust import audit, ledger, verify
from sklar.cli.tryout import demo, generate
from sklar.errors import SklarError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="sklar", message="sklar %(version)s")
def cli(**_debug: bool) -> None:
    """Release differentially private synthetic versions of wide, sensitive tables.

    Write a schema from public knowledge, run one command, get a synthetic table and a model file.

    \b
      sklar release data.csv --schema schema.toml --epsilon 1 --out synthetic.csv
      sklar demo
    """


for _command in (
    audit,
    demo,
    evaluate,
    fit,
    forecast,
    generate,
    ledger,
    query,
    release,
    report,
    sample,
    schema,
    tables,
    verify,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; every failure is one line and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            raise
        click.echo(f"sklar: {_explain(error)}", err=True)
        sys.exit(1)


def _explain(error: BaseException) -> str:
    if isinstance(error, SklarError):
        return str(error)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted. No file was left half-written."
    if isinstance(error, MemoryError):
        return "out of memory. Use a schema with fewer levels, or a larger machine."
    # The text of an unforeseen error might quote a row.
    return f"unexpected {type(error).__name__}. Run sklar --debug with the same command to see where."
