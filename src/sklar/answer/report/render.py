"""Reports by Jinja2: a template escapes every value that it shows, and fails when a value is missing."""

from __future__ import annotations

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


def render(package: str, template: str, view: DataclassInstance | Mapping[str, Any]) -> str:
    """Fill a template of a package with the fields of a view."""
    shown = view if isinstance(view, Mapping) else {each.name: getattr(view, each.name) for each in fields(view)}
    return _environment(package).get_template(template).render(shown)


@cache
def _environment(package: str) -> Environment:
    # Jinja2 is imported only when a report is made.
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "above": rounded_up,
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


def short(value: str, limit: int = 28) -> str:
    """Cut a text to at most `limit` characters."""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def percent(share: float) -> str:
    """Write a share as a percentage with two or three digits: 12%, 1.2%, 0.12%."""
    size = abs(100 * share)
    digits = next((digits for digits, least in enumerate((9.95, 0.995, 0.005)) if size >= least), None)
    return "0%" if digits is None else f"{100 * share:.{digits}f}%"
