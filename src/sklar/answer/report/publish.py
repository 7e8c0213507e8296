"""The publishable report: what was released, what it promises and how far to trust it. Made from a model alone.

This module decides what is shown; `templates/publishable.html.j2` has the words. Equal models give equal bytes: the
page shows no time and no host, and random numbers come from a fixed seed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sklar.answer.report.findings import Findings, find, root_mean_square
from sklar.answer.report.margins import Chart, draw
from sklar.answer.report.pairs import MAX_LISTED, Pairs, compare_pairs
from sklar.answer.report.render import Rows, render, short
from sklar.answer.report.spending import alarms, guesses, measured, searches, settings, together
from sklar.budget.certificate import Certificate, rounded_up
from sklar.budget.risk import Risk, risk_of
from sklar.fitting.margins import pool
from sklar.public.rules import rule_text
from sklar.public.schema import Attribute, Schema
from sklar.public.shown import shown_levels, shown_name, shown_table

if TYPE_CHECKING:
    from sklar.files.model import Model

# These limits keep the page readable, and below 5 MB, however wide the table is.
MAX_CHARTS = 48
MAX_SCHEMA_ROWS = 200

_COPULA = "a Gaussian copula over the levels of all attributes"
_KINDS = {
    "mixture": "a mixture of many simple profiles, fitted to the noisy tables",
    "factor": "a low-rank Gaussian copula over whole attributes, fitted to the noisy tables",
    "independence": "independent attributes, because the noisy tables support no dependence",
}
_KNOWN_FROM = {
    "public": "public knowledge",
    "found": "found with noise, at a cost",
    "rows": "read from the records, at the custodian's risk",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """All that the report shows. The custodian counted `measured` attributes; with only one, `pairs` is None."""

    schema: Schema
    title: str
    about: str
    certificate: Certificate
    file_name: str
    n_rows: int
    measured: int
    kind: str
    error: float
    chance: str
    factor: str
    surest: float
    risk: Risk
    guesses: Rows
    alarms: Rows
    measurements: Rows
    searches: Rows
    earlier: tuple[str, ...]
    together: str
    kinds: str
    attributes: Rows
    read_from_rows: tuple[str, ...]
    rules: tuple[str, ...]
    charts: tuple[Chart, ...]
    pairs: Pairs | None
    asked: str
    run: Rows


def typical_errors(model: Model) -> tuple[float, float | None]:
    """The standard errors of a count over one attribute and over two, as root mean squares; None without pairs."""
    listed = model.measured_schema.names[:MAX_CHARTS]
    one_way = root_mean_square(np.array([model.estimate(name).standard_errors[0] for name in listed]))
    pairs = pool(model.measured.stages).pair_sd
    return one_way, root_mean_square(pairs) if pairs.size else None


def publishable(model: Model, *, file_name: str = "MODEL.sklar") -> str:
    """The report as one HTML document."""
    return render("sklar.answer.report", "publishable.html.j2", view(model, file_name))


def view(model: Model, file_name: str) -> Release:
    """What the report shows."""
    schema, certificate, found = model.schema, model.certificate, find(model)
    kinds = Counter(each.kind for each in schema.attributes)
    odds = math.exp(min(certificate.epsilon, 700.0))
    risk, told = risk_of(certificate), {each.attribute for each in certificate.domains}
    chosen = _leading(found, model.measured_schema.n_attributes)
    return Release(
        schema=schema,
        title=short(shown_table(schema), 120),
        about=" ".join((schema.words.description or "").split()),
        certificate=certificate,
        file_name=short(file_name, 60),
        n_rows=model.n_rows,
        measured=model.measured_schema.n_attributes,
        kind=_KINDS.get(str(model.settings.get("kind")), _COPULA),
        error=typical_errors(model)[0],
        chance=_one_in(certificate.delta),
        factor=rounded_up(odds, 3) if odds < 1e6 else f"e^{rounded_up(certificate.epsilon, 3)}",
        surest=odds / (1 + odds),
        risk=risk,
        guesses=guesses(risk),
        alarms=alarms(risk),
        measurements=measured(certificate),
        searches=searches(certificate, schema),
        earlier=tuple(short(name, 60) for name in certificate.earlier if name not in told),
        together=together(certificate),
        kinds=", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())),
        attributes=tuple(_described(each) for each in schema.attributes[:MAX_SCHEMA_ROWS]),
        read_from_rows=tuple(short(name, 60) for name in certificate.read_from_rows[:MAX_LISTED]),
        rules=tuple(short(rule_text(rule, schema.attributes), 200) for rule in schema.rules[:MAX_LISTED]),
        charts=tuple(_chart(model, found, index) for index in chosen),
        pairs=compare_pairs(model, found) if found.first.size else None,
        asked=" and ".join(_condition(each) for each in schema.attributes[:1] + schema.attributes[1:][-1:]),
        run=settings(certificate),
    )


def _chart(model: Model, found: Findings, index: int) -> Chart:
    offsets = model.measured_schema.offsets
    return draw(model, model.measured_schema.attributes[index], found.levels[offsets[index] : offsets[index + 1]])


def _one_in(chance: float) -> str:
    if chance == 0:
        return "none"
    number = 1 / chance
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= unit:
            return f"1 in {number / unit:.3g} {name}"
    return f"1 in {number:,.0f}"


def _described(attribute: Attribute) -> tuple[str, ...]:
    """What the table of attributes says of one of them."""
    title, words = shown_name(attribute), attribute.words
    alike = title.lower().replace(" ", "_") == attribute.name.lower()
    name = title if alike else f"{title} ({attribute.name})"
    about = [" ".join((words.description or "").split()), f"Unit: {words.unit}." if words.unit else ""]
    levels = shown_levels(attribute)
    listed = levels if len(levels) <= 8 else (*levels[:5], "…", *levels[-2:])
    return (
        short(name, 120),
        short(" ".join(part for part in about if part), 400),
        f"{attribute.kind}, {attribute.n_levels:,} levels",
        ", ".join(short(level, 60) for level in listed),
        _KNOWN_FROM[attribute.known_from],
    )


def _leading(found: Findings, attributes: int) -> list[int]:
    """The attributes to draw, in the order of the schema: all, or those with the strongest dependences."""
    if attributes <= MAX_CHARTS:
        return list(range(attributes))
    # Fewer attributes than we want cannot form this many pairs.
    order = np.argsort(-found.dependence, kind="stable")[: MAX_CHARTS**2]
    ranked = dict.fromkeys(np.stack([found.first[order], found.second[order]], axis=1).ravel().tolist())
    return sorted(list(ranked)[:MAX_CHARTS])


def _condition(attribute: Attribute) -> str:
    """A question about the first level of an attribute, as it stands in double quotes on a command line."""
    name, level = attribute.name, attribute.levels[0].replace("'", "''")
    plain = all(letter.isalnum() or letter in "_-." for letter in name)
    return f"{name} = '{level}'" if plain else f"\\\"{name}\\\" = '{level}'"
