"""Pages by Jinja2: a template escapes every value that it shows, as HTML or Markdown, and fails when one is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from markupsafe import Markup

from sklar.budget.certificate import rounded_up

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment

Rows: TypeAlias = tuple[tuple[str, ...], ...]

_SHARED = "sklar.answer.report"
_MARKS = re.compile(r"([\\`*_{}\[\]#|~$])")


def render(package: str, template: str, view: DataclassInstance | Mapping[str, Any]) -> str:
    """Fill a template of a package with the fields of a view."""
    shown = view if isinstance(view, Mapping) else {each.name: getattr(view, each.name) for each in fields(view)}
    return _environment(package, markdown=template.endswith(".md.j2")).get_template(template).render(shown)


@cache
def _environment(package: str, *, markdown: bool) -> Environment:
    # Jinja2 is imported only when a report is made.
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        finalize=plain if markdown else clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "above": rounded_up,
        "bound": bound,
        "number": lambda value, form=",": format(value, form),
        "percent": percent,
        "short": short,
    }
    return made


def clean(value: Any) -> Any:
    """Replace the control characters of a text, which HTML forbids, by U+FFFD. Markup stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value)


class Markdown(str):
    """A text that is Markdown already."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """A text as Markdown shows it and does not interpret it, in one line."""
    if isinstance(value, Markdown) or not isinstance(value, str):
        return value
    shown = "".join(letter if letter.isprintable() else " " for letter in " ".join(value.split()))
    return Markdown(_MARKS.sub(r"\\\1", shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")))


def short(value: str, limit: int = 28) -> str:
    """Cut a text to at most `limit` characters."""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def percent(share: float) -> str:
    """Write a share as a percentage with two or three digits: 12%, 1.2%, 0.12%."""
    size = abs(100 * share)
    digits = next((digits for digits, least in enumerate((9.95, 0.995, 0.005)) if size >= least), None)
    return "0%" if digits is None else f"{100 * share:.{digits}f}%"


def bound(share: float) -> str:
    """Write a bound as a percentage: rounded up, never to the nearest, and to a thousandth below 1%."""
    places = 3 if share < 0.01 else 1
    # Not what the rounding of floats made larger: 90% is 90%.
    up = math.ceil(100 * share * 10**places - 1e-6) / 10**places
    return f"{min(up, 100.0):.{places}f}".rstrip("0").rstrip(".") + "%"
