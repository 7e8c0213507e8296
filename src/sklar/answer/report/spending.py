"""Where the budget went: what was measured, what was searched for, and what an attacker can gain at most."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter

from sklar.answer.report.render import Rows, short
from sklar.budget.certificate import Certificate
from sklar.budget.risk import FALSE_ALARMS, PRIORS, Risk
from sklar.public.schema import Schema
from sklar.public.shown import shown_name

_MAX_SEARCHES = 200


def measured(certificate: Certificate) -> Rows:
    """What the search for domains and each stage measured: the tables, their noise and their share of the cost."""
    power = 2 if certificate.mechanism == "gaussian" else 1
    measured = [("search", "domains of attributes", each.tables, each.scale) for each in certificate.domains]
    measured += [(str(each.stage), each.what, each.tables, each.scale) for each in certificate.measurements]
    whole = sum(tables * scale**-power for _, _, tables, scale in measured)
    rows = []
    for (stage, what), group in groupby(measured, key=itemgetter(0, 1)):
        _, _, tables, scales = zip(*group, strict=True)
        low, high = f"{min(scales):,.1f}", f"{max(scales):,.1f}"
        share = sum(number * scale**-power for number, scale in zip(tables, scales, strict=True)) / whole
        rows.append((stage, what, f"{sum(tables):,}", low if low == high else f"{low} to {high}", f"{share:.0%}"))
    return tuple(rows)


def searches(certificate: Certificate, schema: Schema) -> Rows:
    """What was searched for in the records, with noise: for which attribute, what was found, and what it cost."""
    power = 2 if certificate.mechanism == "gaussian" else 1
    spent = [(each.tables, each.scale) for each in certificate.domains]
    spent += [(each.tables, each.scale) for each in certificate.measurements]
    whole = sum(tables * scale**-power for tables, scale in spent)
    rows = []
    for each in certificate.domains[:_MAX_SEARCHES]:
        attribute = schema.attribute(each.attribute)
        if each.of == "rounding":
            what = "how its numbers are rounded"
        elif each.threshold is not None:
            what = f"{len(attribute.values):,} categories with at least {each.threshold:,} rows after noise"
        else:
            heaps = f" and {len(attribute.points):,} common values" if attribute.points else ""
            what = f"{attribute.n_bins:,} bins{heaps} between public bounds"
        share = each.tables * each.scale**-power / whole
        rows.append((short(shown_name(attribute), 60), what, f"{each.tables:,}", f"{each.scale:,.1f}", f"{share:.1%}"))
    return tuple(rows)


def together(certificate: Certificate) -> str:
    """How many attributes were counted together at most, in words."""
    # Scores are of three-way tables.
    most = min(max(each.order for each in certificate.measurements), 3)
    return ("no", "one", "two", "three")[most]


def guesses(risk: Risk) -> Rows:
    """How often an attacker's best guess is right, by what the attacker believed beforehand."""
    rows = []
    for others in PRIORS:
        before, after = risk.right(others)
        believed = "even: one of two" if others == 1 else f"one of {others + 1}"
        rows.append(
            (believed, _precise(before), f"at most {_precise(after)}", f"at most {_precise(risk.sure(others))}")
        )
    return tuple(rows)


def alarms(risk: Risk) -> Rows:
    """How many true cases a cautious attacker finds, by how many others are accused wrongly."""
    return tuple((f"1 in {among:,}", f"at most {_precise(risk.found(among))}") for among in FALSE_ALARMS)


def _precise(share: float) -> str:
    """A bound as a percentage: rounded up, never to the nearest."""
    value = 100 * share
    places = 3 if value < 1 else 1
    # Not what the rounding of floats made larger: 90% is 90%.
    up = math.ceil(value * 10**places - 1e-6) / 10**places
    return f"{min(up, 100.0):.{places}f}".rstrip("0").rstrip(".") + "%"


def settings(certificate: Certificate) -> Rows:
    """What was run."""
    claimed = certificate.claimed_by
    return (
        ("Schema, SHA-256", certificate.schema_sha256),
        *([("Measured by (not checked)", claimed)] if claimed else []),
        ("Mechanism", f"discrete {certificate.mechanism}" if certificate.versions else certificate.mechanism),
        ("Composition", certificate.composition),
        ("Neighbors", certificate.neighbors),
        ("Protected", f"any one {certificate.unit}"),
        ("Counted", certificate.counted),
        *((f"Version of {name}", number) for name, number in sorted(certificate.versions.items())),
    )
