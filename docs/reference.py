"""The reference of all commands as one page, made from the commands themselves: `python -m docs.reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click

from sklar.cli import cli

_HEAD = """# Commands

Every command with its options, made from the commands themselves by `python -m docs.reference docs/commands.md`; a
test fails when this page is stale. `sklar COMMAND --help` says the same.
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join([_HEAD, *_sections(cli, "sklar", 2)]).rstrip() + "\n"


def _sections(group: click.Group, path: str, depth: int) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        named = f"{path} {name}"
        yield f"{'#' * depth} {named}\n"
        if isinstance(command, click.Group):
            yield f"{_paragraphs(command.help or '')}\n"
            yield from _sections(command, named, depth + 1)
            continue
        context = click.Context(command, info_name=named)
        yield f"```text\n{named} {' '.join(command.collect_usage_pieces(context))}\n```\n"
        yield f"{_paragraphs(command.help or '')}\n"
        yield "| option | what |\n|---|---|"
        for option in command.params:
            record = option.get_help_record(context) if isinstance(option, click.Option) else None
            if record is not None:
                yield f"| `{_cell(record[0])}` | {_cell(record[1]).replace('<', '&lt;')} |"
        yield ""


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


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
