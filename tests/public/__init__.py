"""Tests of what is publicly known, and the tables of cases that they share: what is read, and what is refused."""

from pathlib import Path

from sklar.public.axis import AXES
from sklar.public.schema import Attribute, Schema


def one(body: str, name: str = "age") -> Attribute:
    """The single attribute that this TOML describes, whose first line may be a type alone; ` ; ` ends a line too."""
    kind, _, rest = body.replace(" ; ", "\n").partition("\n")
    body = f'type = "{kind}"\n{rest}' if kind in AXES else f"{kind}\n{rest}"
    return Schema.from_toml(f"[attributes.{name}]\n{body}").attributes[0]


def cases(table: str) -> list[tuple[str, str]]:
    """The lines of a table: entries, each with what comes of it behind an arrow, which may begin a line of its own."""
    lines = table.strip().replace("\n    ->", " ->").splitlines()
    return [(entry, outcome) for entry, _, outcome in (line.partition(" -> ") for line in lines)]


def tables(file: str) -> dict[str, list[tuple[str, str]]]:
    """The tables of a file beside this one, each by its heading."""
    text = Path(__file__).with_name(file).read_text()
    return {name: cases(table) for name, table in (part.split("\n", 1) for part in text.split("== ")[1:])}


READ, REFUSED = tables("read.txt"), tables("refused.txt")
