"""The folder's texts for people: a README, at the same time a Hugging Face card, and a checklist after NIST SP 800-226.

Every text that somebody else wrote is escaped, so that it can only be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sklar.answer.report.publish import together
from sklar.answer.report.render import Markdown, plain, render
from sklar.budget.risk import risk_of
from sklar.public.schema import Schema
from sklar.public.shown import shown_levels, shown_name
from sklar.trust.passport import facts as files
from sklar.trust.passport.facts import Facts


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


def yaml(document: Mapping[str, Any], indent: int = 0) -> str:
    """Mappings, lists, texts and numbers as YAML, whose texts are those of JSON."""
    space, lines = " " * indent, []
    for key, value in document.items():
        if isinstance(value, Mapping):
            lines.append(f"{space}{key}:\n{yaml(value, indent + 2)}")
        elif isinstance(value, list):
            # The first key of a mapping stands behind the dash.
            items = [yaml(each, indent + 4).lstrip() if isinstance(each, Mapping) else _scalar(each) for each in value]
            lines.append(f"{space}{key}:\n" + "".join(f"{space}  - {item}" for item in items))
        else:
            lines.append(f"{space}{key}: {_scalar(value)}")
    return "".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, float):
        # YAML reads 1e-09 as a text: a number has a point.
        digits, power, exponent = repr(value).partition("e")
        return f"{digits if '.' in digits else f'{digits}.0'}{power}{exponent}\n"
    # What is not ASCII is escaped: YAML has rules of its own for it.
    return f"{json.dumps(value)}\n"


# How Hugging Face names sizes.
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
          (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"), (10**11, "10B<n<100B"),
          (10**12, "100B<n<1T"))  # fmt: skip
# Licenses that Hugging Face knows by these names; others are named with their address.
_LICENSES = frozenset({
    "apache-2.0", "mit", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0", "cdla-permissive-1.0",
    "cdla-permissive-2.0", "odbl", "odc-by", "pddl", "gpl-3.0", "lgpl-3.0", "bsd-3-clause", "unlicense",
})  # fmt: skip
_MOST_LISTED = 200
_MOST_LEVELS = 12


def _card(facts: Facts) -> dict[str, Any]:
    """What a Hugging Face dataset card states at its head."""
    publication = facts.publication
    named = re.sub("^(odbl|odc-by|pddl)-1.0$", r"\1", (publication.license or "").lower())
    known = {"license": named}
    other = {"license": "other", "license_name": publication.license, "license_link": publication.license_address}
    return {
        "pretty_name": facts.title,
        **({} if not named else known if named in _LICENSES else other),
        "size_categories": [next((name for size, name in _SIZES if facts.rows < size), "n>1T")],
        "tags": ["tabular", "synthetic", "differential-privacy"],
        "source_datasets": ["original"],
        "annotations_creators": ["machine-generated"],
        "configs": [
            {"config_name": "default", "default": True, "data_files": [{"split": "train", "path": files.ROWS_PARQUET}]}
        ],
    }


def readme(facts: Facts) -> str:
    """The README in Markdown."""
    schema = facts.model.schema
    # Names that a shell takes as they are; the paper's copula answers counts alone.
    infers, measured = facts.model.copula.components() is not None, facts.model.measured_schema.attributes
    plainly = [each for each in measured if infers and each.name.isidentifier()]
    means = [("mean", each.name) for each in plainly if each.kind in ("integer", "real") and each.edges]
    shares = [("share", each.name) for each in plainly if not each.edges]
    attributes = [
        [code(each.name), plain(shown_name(each)), _levels(shown_levels(each)), plain(facts.described(each))]
        for each in schema.attributes[:_MOST_LISTED]
    ]
    return filled(
        "README.md.j2",
        facts,
        card=Markdown(yaml(_card(facts))),
        together=together(facts.model.certificate),
        listed=[[code(name), what] for name, what in files.FILES.items()],
        asked=Markdown(", ".join(repr(name) for name in (*schema.names[:1], *schema.names[1:][-1:]))),
        infers=infers,
        questions=[Markdown(f'{what}("{name}")') for what, name in (*shares[:1], *means[:1])],
        attributes=attributes,
        left_out=schema.n_attributes - _MOST_LISTED,
    )


def _levels(levels: tuple[str, ...]) -> str:
    shown = levels if len(levels) <= _MOST_LEVELS else (*levels[: _MOST_LEVELS - 2], "…", levels[-1])
    return ", ".join(plain(level) for level in shown)


def checklist(facts: Facts) -> str:
    """A checklist in Markdown: what has to be true for the promise to hold, who decided it, and how to check it.

    NIST's guide orders the questions about a differential privacy guarantee as a pyramid: each level rests on those
    below it. What the model states is answered; what only the custodian knows is marked as open.
    """
    stated, named = facts.model.certificate, facts.publication.publisher
    counted = "the number of people" if stated.count is not None else "the number of rows"
    public = ["the schema", "the settings", *([] if stated.public_rows is None else [counted])]
    public += ["rules"] if facts.model.schema.rules else []
    return filled(
        "checklist.md.j2",
        facts,
        who="the custodian" if named is None else f"the custodian ({named})",
        by=facts.sklar if stated.claimed_by is None else f"{stated.claimed_by} (claimed, not checked)",
        domains=_domains(facts.model.schema),
        public=", ".join(public),
    )


def filled(template: str, facts: Facts, **shown: Any) -> str:
    """One of the folder's texts, with what all of them may say."""
    paired = None if facts.errors[1] is None else f"{facts.errors[1]:,.0f}"
    stated = facts.model.certificate
    shown |= {"facts": facts, "stated": stated, "files": files, "paired": paired, "risk": risk_of(stated)}
    return render("sklar.trust.passport", template, shown | {"table": _table, "code": code, "codes": _codes})


def _domains(schema: Schema) -> Markdown:
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
