"""The folder's texts for people: a README, at the same time a Hugging Face card, and a checklist after NIST SP 800-226.

Every text that somebody else wrote is escaped, so that it can only be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sklar.answer.report.publish import together
from sklar.budget.risk import risk_of
from sklar.public.schema import Schema
from sklar.public.shown import shown_levels, shown_name
from sklar.trust.passport.facts import CERTIFICATE, FILES, MODEL, REPORT, ROWS_PARQUET, SCHEMA, SUMS, TABLES, Facts

_MARKS = re.compile(r"([\\`*_{}\[\]#|~$])")


def plain(text: str) -> str:
    """A text as Markdown shows it and does not interpret it, in one line."""
    shown = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return _MARKS.sub(r"\\\1", shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def code(text: str) -> str:
    """A text as a piece of code in a line."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{edge}{shown}{edge}{ticks}".replace("|", "\\|")


def _codes(names: Sequence[str]) -> str:
    return ", ".join(code(name) for name in names[:20]) + (" and others" if len(names) > 20 else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)) + "\n"


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
            {"config_name": "default", "default": True, "data_files": [{"split": "train", "path": ROWS_PARQUET}]}
        ],
    }


def readme(facts: Facts) -> str:
    """The README in Markdown."""
    schema, stated, publication = facts.model.schema, facts.model.certificate, facts.publication
    one_way, two_way = facts.errors
    paired = "" if two_way is None else f", one over two attributes by ± {two_way:,.0f}"
    asked = ", ".join(repr(name) for name in (*schema.names[:1], *schema.names[1:][-1:]))
    left_out = schema.n_attributes - _MOST_LISTED
    publisher = zip(
        ("Publisher", "Contact", "License", "Address", "Published"), asdict(publication).values(), strict=True
    )
    uncovered = (
        f"**The promise does not cover the categories and bins of {_codes(stated.read_from_rows)}**: they were read "
        "from the records. "
    )
    attributes = [
        [code(each.name), plain(shown_name(each)), _levels(shown_levels(each)), plain(facts.described(each))]
        for each in schema.attributes[:_MOST_LISTED]
    ]
    return "\n".join(
        [
            f"---\n{yaml(_card(facts))}---\n",
            f"# {plain(facts.title)}\n",
            f"{plain(facts.description)}\n",
            _table(["", ""], [[what, plain(value or "not stated")] for what, value in publisher]),
            "## Read this first\n",
            f"- **No record is a person.** A model invented the rows; a likeness to anybody is chance.\n"
            f"- **Every count carries noise.** A count over one attribute is off by about ± {one_way:,.0f} (one "
            f"standard error){paired}. {code(REPORT)} shows error bars for everything.\n"
            "- **Do not** look for single people, read small groups as facts, or use formulas for standard errors of "
            "surveys: they see the sampling of rows and not the noise.\n"
            f"- What more than {together(stated)} attributes say together was not measured. Treat it as a "
            "hypothesis.\n",
            "## Privacy\n",
            f"{plain(facts.promise)} The noise is {stated.mechanism}, the composition {plain(stated.composition)}. "
            f"Costs add up over all releases from the same table. {uncovered if stated.read_from_rows else ''}"
            f"Everything here was made from {code(MODEL)} alone: using it, however often, costs no privacy.\n",
            "## Files\n",
            _table(["file", "what"], [[code(name), what] for name, what in FILES.items()]),
            "## How to compute with error bars\n",
            "For counts over one or two attributes, ask the noisy tables: their errors are known.\n",
            f"```python\nimport sklar  # pip install sklar\n\nmodel = sklar.load({MODEL!r})\n"
            f"table = model.estimate({asked})\n"
            "table.counts, table.standard_errors, table.low, table.high  # 95% intervals\n```\n",
            f"Without Sklar: each row of {code(TABLES)} is one noisy count `value` with noise of scale `scale` "
            f"({'its standard deviation' if stated.mechanism == 'gaussian' else 'its mean absolute size'}). "
            "Where a cell was measured in several stages, average them with weights `1 / scale**2`; the variance of a "
            "sum of cells is the sum of their variances.\n",
            "For plots, models and wider tables use the synthetic rows. To see what the draw adds, draw again with "
            "other seeds; to see what the noise adds, compare with the noisy tables:\n",
            f"```bash\nsklar sample {MODEL} --rows {facts.rows} --seed 1 --out again.parquet\nsklar verify .\n```\n",
            "## Attributes\n",
            _table(["column", "title", "values", "description"], attributes)
            + (f"\n{left_out:,} more are in `{SCHEMA}`.\n" if left_out > 0 else ""),
            "## Citation\n",
            f"> {plain(facts.citation)}\n",
            f"Rows {facts.rows:,}, seed {facts.seed}. `sklar verify .` in this folder makes every file again from the "
            "model, and says what may be concluded.\n",
        ]
    )


def _levels(levels: tuple[str, ...]) -> str:
    shown = levels if len(levels) <= _MOST_LEVELS else (*levels[: _MOST_LEVELS - 2], "…", levels[-1])
    return ", ".join(plain(level) for level in shown)


_OPEN = "**open**"


def checklist(facts: Facts) -> str:
    """A checklist in Markdown: what has to be true for the promise to hold, who decided it, and how to check it.

    NIST's guide orders the questions about a differential privacy guarantee as a pyramid: each level rests on those
    below it. What the model states is answered; what only the custodian knows is marked as open.
    """
    stated, named, (one_way, two_way) = facts.model.certificate, facts.publication.publisher, facts.errors
    who = "the custodian" if named is None else f"the custodian ({plain(named)})"
    by = facts.sklar if stated.claimed_by is None else f"{plain(stated.claimed_by)} (claimed, not checked)"
    verify, audit, risk = "`sklar verify .`", "`sklar audit`", risk_of(stated)
    paired = "" if two_way is None else f", ± {two_way:,.0f} rows over two"
    counted = "people" if stated.count is not None else "rows"
    public = ["the schema", "the settings"]
    public += [f"the number of {counted}"] if stated.public_rows is not None else []
    public += ["rules"] if facts.model.schema.rules else []
    bounds = {"replace-one": "bounded: their number is public"}
    bounded = bounds.get(stated.neighbors, "unbounded: their number is measured with noise")
    sections = {
        "Top: how strong the guarantee is": (
            ("Epsilon and delta", f"{facts.epsilon}, {facts.delta}; fixed before measuring", who, verify),
            ("What they mean", f"an attacker's best guess at even odds is right at most {100 * risk.right(1)[1]:.1f}% "
             "of the time", f"follows by {plain(risk.theorem)}", code(REPORT)),
            ("Privacy unit", plain(facts.unit), who, code(CERTIFICATE)),
            ("Neighbors", f"{stated.neighbors} ({bounded})", who, code(CERTIFICATE)),
            ("Other releases of the same table", _OPEN, who, "`sklar ledger check`, with the custodian"),
            ("Why this epsilon is right for these people", _OPEN, who, ""),
        ),
        "Middle: what could undermine it": (
            ("Algorithms", f"noise on one-way and two-way counts; {stated.mechanism}, {plain(stated.composition)} "
             "composition", by, verify),
            ("Implementation of noise", "exact, whole numbers, the system's entropy", by, audit),
            ("Choices made from the data", "from noisy tables only, within the budget", by, "`sklar verify --refit`"),
            ("Domains (categories and bins)", _domains(facts.model.schema), f"{who}, who reviewed the schema",
             code(SCHEMA)),
            ("Treated as public", ", ".join(public), who, code(SCHEMA)),
            ("Utility", f"± {one_way:,.0f} rows for a count over one attribute{paired} (standard errors)",
             f"{who}, by epsilon and the schema", code(REPORT)),
            ("Bias", "noisy tables are unbiased; small groups drown in noise, and rows show them less exactly",
             f"{by}, and the schema's bins", code(REPORT)),
            ("Has the file changed since?", f"SHA-256 of every file in {code(SUMS)}", "whoever signed it", verify),
        ),
        "Bottom: what it stands on": (
            ("Trust model", "central: the custodian sees the records and runs the mechanism", who, ""),
            ("Who may see the records, and where they are", _OPEN, who, ""),
            ("Side channels (times, sizes, errors) of the run", "none in the files published here", by, audit),
            ("How the records were collected, and with which consent", _OPEN, who, ""),
            ("Are records kept that are not needed any more?", _OPEN, who, ""),
        ),
    }  # fmt: skip
    parts = [
        f"# Checklist after NIST SP 800-226: {plain(facts.model.schema.name)}\n",
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025, "
        "https://doi.org/10.6028/NIST.SP.800-226), asks what a promise rests on, from the parameters down to how the "
        f"data were collected. Answers come from {code(MODEL)}. {_OPEN} is what the file cannot tell: the publisher "
        "has to answer it. This is no statement by NIST.\n",
    ]
    for title, rows in sections.items():
        parts += [f"## {title}\n", _table(["question", "answer", "decided by", "check"], rows)]
    return "\n".join(parts)


def _domains(schema: Schema) -> str:
    """Where the levels come from, attribute by attribute."""
    words = {"public": "public knowledge", "found": "found with noise, paid for", "rows": "**read from the records**"}
    by_kind = {kind: [each.name for each in schema.attributes if each.known_from == kind] for kind in words}
    return "; ".join(
        f"{len(names):,} {words[kind]}{'' if kind == 'public' else f' ({_codes(names)})'}"
        for kind, names in by_kind.items()
        if names
    )
