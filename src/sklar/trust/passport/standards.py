"""Descriptions of a folder in the standards' own terms: Frictionless, Croissant 1.1, DCAT, and the OpenDP registry.

Each is a template. What the publisher does not state is null there, and left out; where the standard wants it, marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from sklar.answer.report.render import render
from sklar.trust.passport.facts import DATA, FILES, REPORT, ROWS_PARQUET, WEB, Facts, RowColumn

_KEYWORDS = ("synthetic data", "differential privacy")
# In the registry's entry: what only people know.
MARK = "TO BE FILLED IN"
REGISTRY_HEAD = f"""\
# A draft for the registry of differential privacy deployments (registry.opendp.org), made from the model file.
# Fill in what is marked "{MARK}", set the status and the authors of the entry, and send it in.
"""
_CROISSANT_TYPES = {
    "string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean", "date": "sc:Date",
    "datetime": "sc:DateTime", "time": "sc:Time",
}  # fmt: skip
_MAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")


def described(facts: Facts, template: str) -> dict[str, Any]:
    """What one of the templates says of a folder."""
    # Croissant has no type for durations: they are in the files alone.
    typed = [column for column in facts.columns if column.family in _CROISSANT_TYPES]
    contact = facts.publication.contact or ""
    mail = ("vcard:hasEmail", f"mailto:{contact}") if _MAIL.fullmatch(contact) else None
    view = {
        "j": json.dumps,
        "facts": facts,
        "stated": facts.model.certificate,
        "publication": facts.publication,
        "address": facts.publication.license_address,
        "keywords": _KEYWORDS,
        "data": DATA,
        "files": FILES,
        "report": REPORT,
        "rows_file": ROWS_PARQUET,
        "typed": list(zip(typed, ids_of(column.name for column in typed), strict=True)),
        "types": _CROISSANT_TYPES,
        "described": _words,
        "reach": ("vcard:hasURL", contact) if WEB.fullmatch(contact) else mail,
        "mark": MARK,
        "public": _public(facts),
        "measured": _measured(facts),
    }
    document: dict[str, Any] = _stated(json.loads(render("sklar.trust.passport", template, view)))
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


def _public(facts: Facts) -> list[str]:
    """What a release treats as public."""
    stated = facts.model.certificate
    public = ["the schema (names of attributes, categories and bins)", "the settings of the release"]
    if stated.public_rows is not None:
        public.append(f"the number of {'rows' if stated.count is None else 'people'}")
    if stated.read_from_rows:
        public.append(f"categories and bins read from the records: {', '.join(stated.read_from_rows[:20])}")
    if stated.unread:
        public.append(f"entries drafted from the records and accepted unread: {', '.join(stated.unread[:20])}")
    return public


def _measured(facts: Facts) -> list[str]:
    measured = []
    for (stage, what), group in groupby(facts.model.certificate.measurements, key=lambda each: (each.stage, each.what)):
        tables, scales = zip(*((each.tables, each.scale) for each in group), strict=True)
        between = " to ".join(dict.fromkeys(f"{scale:.4g}" for scale in (min(scales), max(scales))))
        measured.append(f"stage {stage}: {sum(tables):,} {what} at scale {between}")
    return measured
