"""A checklist after NIST SP 800-226: what has to be true for the promise to hold, who decided it, and how to check it.

NIST's guide orders the questions about a differential privacy guarantee as a pyramid: each level rests on those below
it. What the model states is answered; what only the custodian knows is marked as open.
"""

from __future__ import annotations

from sklar.budget.risk import risk_of
from sklar.public.schema import Schema
from sklar.trust.passport.facts import Facts
from sklar.trust.passport.layout import CERTIFICATE, MODEL, REPORT, SCHEMA, SUMS
from sklar.trust.passport.markdown import code, plain, table

OPEN = "**open**"
_MOST = 20


def checklist(facts: Facts) -> str:
    """The checklist in Markdown."""
    parts = [
        f"# Checklist after NIST SP 800-226: {plain(facts.schema.name)}\n",
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025, "
        "https://doi.org/10.6028/NIST.SP.800-226), asks what a promise rests on, from the parameters down to how the "
        f"data were collected. Answers come from {code(MODEL)}. {OPEN} is what the file cannot tell: the publisher "
        "has to answer it. This is no statement by NIST.\n",
    ]
    for title, rows in _sections(facts):
        parts += [f"## {title}\n", table(["question", "answer", "decided by", "check"], rows) + "\n"]
    return "\n".join(parts)


def _sections(facts: Facts) -> list[tuple[str, list[list[str]]]]:
    certificate, (one_way, two_way) = facts.certificate, facts.errors
    who = (
        "the custodian"
        if facts.publication.publisher is None
        else f"the custodian ({plain(facts.publication.publisher)})"
    )
    claimed = certificate.claimed_by
    by_code = f"{facts.sklar}" if claimed is None else f"{plain(claimed)} (claimed, not checked)"
    verify, risk = "`sklar verify .`", risk_of(certificate)
    paired = "" if two_way is None else f", ± {two_way:,.0f} rows over two"
    guessed = 100 * risk.right(1)[1]
    return [
        (
            "Top: how strong the guarantee is",
            [
                ["Epsilon and delta", f"{facts.epsilon}, {facts.delta}; fixed before measuring", who, verify],
                [
                    "What they mean",
                    f"an attacker's best guess at even odds is right at most {guessed:.1f}% of the time",
                    f"follows by {plain(risk.theorem)}",
                    code(REPORT),
                ],
                ["Privacy unit", plain(facts.unit), who, code(CERTIFICATE)],
                ["Neighbors", f"{certificate.neighbors} ({_bounded(facts)})", who, code(CERTIFICATE)],
                ["Other releases of the same table", OPEN, who, "`sklar ledger check`, with the custodian"],
                ["Why this epsilon is right for these people", OPEN, who, ""],
            ],
        ),
        (
            "Middle: what could undermine it",
            [
                [
                    "Algorithms",
                    f"noise on one-way and two-way counts; {certificate.mechanism}, {plain(certificate.composition)} "
                    "composition",
                    by_code,
                    verify,
                ],
                ["Implementation of noise", "exact, whole numbers, the system's entropy", by_code, "`sklar audit`"],
                [
                    "Choices made from the data",
                    "from noisy tables only, within the budget",
                    by_code,
                    "`sklar verify --refit`",
                ],
                ["Domains (categories and bins)", *_domains(facts.schema, who)],
                ["Treated as public", _public(facts), who, code(SCHEMA)],
                [
                    "Utility",
                    f"± {one_way:,.0f} rows for a count over one attribute{paired} (standard errors)",
                    f"{who}, by epsilon and the schema",
                    code(REPORT),
                ],
                [
                    "Bias",
                    "noisy tables are unbiased; small groups drown in noise, and rows show them less exactly",
                    f"{by_code}, and the schema's bins",
                    code(REPORT),
                ],
                ["Has the file changed since?", f"SHA-256 of every file in {code(SUMS)}", "whoever signed it", verify],
            ],
        ),
        (
            "Bottom: what it stands on",
            [
                ["Trust model", "central: the custodian sees the records and runs the mechanism", who, ""],
                ["Who may see the records, and where they are", OPEN, who, ""],
                [
                    "Side channels (times, sizes, errors) of the run",
                    "none in the files published here",
                    by_code,
                    "`sklar audit`",
                ],
                ["How the records were collected, and with which consent", OPEN, who, ""],
                ["Are records kept that are not needed any more?", OPEN, who, ""],
            ],
        ),
    ]


def _bounded(facts: Facts) -> str:
    if facts.certificate.neighbors == "replace-one":
        return "bounded: their number is public"
    return "unbounded: their number is measured with noise"


def _domains(schema: Schema, who: str) -> list[str]:
    """Where the levels come from, attribute by attribute."""
    kinds: dict[str, list[str]] = {"public": [], "found": [], "rows": []}
    for attribute in schema.attributes:
        kinds[attribute.known_from].append(attribute.name)
    words = {"public": "public knowledge", "found": "found with noise, paid for", "rows": "**read from the records**"}
    told = [f"{len(names):,} {words[kind]}{_names(kind, names)}" for kind, names in kinds.items() if names]
    return ["; ".join(told), f"{who}, who reviewed the schema", code(SCHEMA)]


def _names(kind: str, names: list[str]) -> str:
    if kind == "public":
        return ""
    listed = ", ".join(code(name) for name in names[:_MOST])
    return f" ({listed}{' and others' if len(names) > _MOST else ''})"


def _public(facts: Facts) -> str:
    said = ["the schema", "the settings"]
    if facts.certificate.public_rows is not None:
        said.append("the number of people" if facts.certificate.count is not None else "the number of rows")
    return ", ".join([*said, "rules"] if facts.schema.rules else said)
