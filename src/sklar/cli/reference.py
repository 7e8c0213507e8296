"""The reference of all commands as one page, made from the commands themselves: `python -m sklar.cli.reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click

from sklar.cli import cli

_HEAD = """# Commands

Every command with its options, made from the commands themselves by `python -m sklar.cli.reference docs/commands.md`; a
test fails when this page is stale. `sklar COMMAND --help` says the same.
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join([_HEAD, *_sections(cli, "sklar", 2)]).rstrip() + "\n"


def _sections(group: click.Group, path: str, depth: int) -> Iterator[str]:
    for name in sorted(group.commands):
        command, named = group.commands[name], f"{path} {name}"
        context = click.Context(command, info_name=named)
        yield f"{'#' * depth} {named}\n"
        if isinstance(command, click.Group):
            yield f"{_paragraphs(command.help or '')}\n"
            yield from _sections(command, named, depth + 1)
            continue
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{named} {usage}\n```\n"
        yield f"{_paragraphs(command.help or '')}\n"
        yield from _options(command, context)


def _paragraphs(text: str) -> str:
    """Help as Markdown: what click is told to leave alone is shown as it is."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.lstrip().startswith("\b"):
            shown = dedent(part.replace("\b", "").strip().join(["  ", "\n"])).strip()
            parts.append(f"```text\n{shown}\n```")
        else:
            parts.append(" ".join(line.strip() for line in part.splitlines()).replace("<", "&lt;"))
    return "\n\n".join(parts)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [record for each in options if (record := each.get_help_record(context)) is not None]
    if not records:
        return
    lines = [f"| `{_cell(names)}` | {_cell(text).replace('<', '&lt;')} |" for names, text in records]
    yield "\n".join(["| option | what |", "|---|---|", *lines]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
