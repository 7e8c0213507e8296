"""The folder's texts: for people a README, at the same time a Hugging Face card, and a checklist after NIST SP 800-226;
for machines descriptions in the standards' own terms: Frictionless, Croissant 1.1, DCAT, and the OpenDP registry.

Every text that somebody else wrote is escaped, so that it can only be read. Each description is a template: what the
publisher does not state is null there, and left out; where the standard wants it, marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from textwrap import indent
from typing import Any

from sklar.answer.report import publish
from sklar.answer.report.render import Markdown, plain, render
from sklar.budget.risk import risk_of
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_levels, shown_name
from sklar.trust.passport import facts as files
from sklar.trust.passport.facts import WEB, WORDS, Facts, RowColumn

_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")
_MOST_LISTED, _MOST_LEVELS = 200, 12


def code(text: str) -> Markdown:
    """A text as a piece of code in a line."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return Markdown(f"{ticks}{edge}{shown}{edge}{ticks}".replace("|", "\\|"))


def _codes(names: Sequence[str]) -> Markdown:
    return Markdown(", ".join(map(code, names[:20])) + (" and others" if len(names) > 20 else ""))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """A table of cells that are Markdown already."""
    lines = [f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows)]
    return Markdown("".join(lines))


def yaml(document: Mapping[str, Any]) -> str:
    """A mapping as YAML, a key a line. JSON is YAML, but a number such as 1e-09, which some read as a text."""
    values = ((key, indent(json.dumps(value, indent=2), "  ").lstrip()) for key, value in document.items())
    text = "".join(f"{key}: {value}\n" for key, value in values)
    return re.sub(r'"(?:[^"\\]|\\.)*"|(?<![\d.])\d+(?=e)', lambda found: found[0] + ".0" * (found[0][0] != '"'), text)


def readme(facts: Facts) -> str:
    """The README in Markdown."""
    # Names that a shell takes as they are; the paper's copula answers counts alone.
    infers, measured = facts.model.copula.components() is not None, facts.model.measured_schema.attributes
    plainly = [each for each in measured if infers and each.name.isidentifier()]
    means = [("mean", each.name) for each in plainly if each.kind in ("integer", "real") and each.edges]
    shares = [("share", each.name) for each in plainly if not each.edges]
    names = facts.model.schema.names
    return filled(
        "README.md.j2",
        facts,
        card=Markdown(yaml(described(facts, "card.json.j2"))),
        asked=Markdown(", ".join(repr(name) for name in (*names[:1], *names[1:][-1:]))),
        infers=infers,
        questions=[Markdown(f'{what}("{name}")') for what, name in (*shares[:1], *means[:1])],
        lines=map(_line, facts.model.schema.attributes[:_MOST_LISTED]),
        most_listed=_MOST_LISTED,
    )


def _line(attribute: Attribute) -> list[str]:
    """The line of one attribute in the table of attributes."""
    levels = shown_levels(attribute)
    levels = levels if len(levels) <= _MOST_LEVELS else (*levels[: _MOST_LEVELS - 2], "…", levels[-1])
    told = ", ".join(plain(level) for level in levels)
    return [code(attribute.name), plain(shown_name(attribute)), told, plain(publish.described(attribute))]


def filled(template: str, facts: Facts, **shown: Any) -> str:
    """One of the folder's texts, with what all of them may say."""
    stated = facts.model.certificate
    rows = files.rows_of(facts.model).items()
    shown |= {"facts": facts, "uses": facts.uses, "stated": stated, "files": files, "risk": risk_of(stated)}
    shown["publication"] = facts.publication
    shown["rows"] = {kind: Markdown(" and ".join(map(code, names))) for kind, names in rows}
    shown["listed"] = [[code(name), what] for name, what in facts.files.items()]
    return render("sklar.trust.passport", template, shown | {"table": _table, "code": code, "codes": _codes})


def domains(schema: Schema) -> Markdown:
    """Where the levels come from, attribute by attribute."""
    words = {"public": "public knowledge", "found": "found with noise, paid for", "rows": "**read from the records**"}
    words["unread"] = "**drafted from the records, accepted unread**"
    known = {each.name: "unread" if each.reviewed == "unread" else each.known_from for each in schema.attributes}
    by_kind = {kind: [name for name in known if known[name] == kind] for kind in words}
    parts = [
        f"{len(names):,} {words[kind]}{'' if kind == 'public' else f' ({_codes(names)})'}"
        for kind, names in by_kind.items()
        if names
    ]
    return Markdown("; ".join(parts))


def described(facts: Facts, template: str) -> dict[str, Any]:
    """What one of the templates says of a folder."""
    typed = {}
    for table, columns in facts.tables.items():
        own = [column for column in columns if column.family in WORDS["croissant"]]
        typed[table] = list(zip(own, ids_of(column.name for column in own), strict=True))
    contact = facts.publication.contact or ""
    mail = ("vcard:hasEmail", f"mailto:{contact}") if _MAIL.fullmatch(contact) else None
    reach = ("vcard:hasURL", contact) if WEB.fullmatch(contact) else mail
    view: dict[str, Any] = {"j": json.dumps, "typed": typed, "described": _words, "reach": reach}
    document: dict[str, Any] = _stated(json.loads(filled(template, facts, measured=_measured(facts), **view)))
    return document


def _stated(document: Any) -> Any:
    """All but what nobody states."""
    if isinstance(document, dict):
        return {name: _stated(value) for name, value in document.items() if value is not None}
    return [_stated(value) for value in document] if isinstance(document, list) else document


def ids_of(names: Iterable[str]) -> list[str]:
    """A name for each column that is part of an address: letters, digits, and no two alike."""
    ids: dict[str, None] = {}
    for number, name in enumerate(names, start=1):
        plain = re.sub("[^A-Za-z0-9._-]+", "_", name)
        while plain in ids:
            plain += f"_{number}"
        ids[plain] = None
    return list(ids)


def _words(column: RowColumn) -> str:
    words = f"{column.title}. {column.description}".strip() if column.description else column.title
    labels = "; ".join(f"{value}: {label}" for value, label in column.labels)
    return f"{words} {labels}." if labels else words


def _measured(facts: Facts) -> list[str]:
    measured = []
    for (stage, what), group in groupby(facts.model.certificate.measurements, key=lambda each: (each.stage, each.what)):
        tables, scales = zip(*((each.tables, each.scale) for each in group), strict=True)
        between = " to ".join(dict.fromkeys(f"{scale:.4g}" for scale in (min(scales), max(scales))))
        measured.append(f"stage {stage}: {sum(tables):,} {what} at scale {between}")
    return measured
