"""The folder's README: what it is, how to cite it, how to compute with it; at the same time a Hugging Face card."""

from __future__ import annotations

from typing import Any

from sklar.public.shown import shown_levels, shown_name
from sklar.trust.passport.facts import NOT_STATED, Facts
from sklar.trust.passport.layout import FILES, MODEL, REPORT, ROWS_PARQUET, TABLES
from sklar.trust.passport.markdown import code, plain, table, yaml

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
_OTHER_NAMES = {"odbl-1.0": "odbl", "odc-by-1.0": "odc-by", "pddl-1.0": "pddl"}
_MOST_LISTED = 200
_MOST_LEVELS = 12


def card(facts: Facts) -> dict[str, Any]:
    """What a Hugging Face dataset card states at its head."""
    stated: dict[str, Any] = {"pretty_name": facts.title}
    if facts.publication.license is not None:
        named = facts.publication.license.lower()
        named = _OTHER_NAMES.get(named, named)
        stated |= (
            {"license": named}
            if named in _LICENSES
            else {
                "license": "other",
                "license_name": facts.publication.license,
                "license_link": facts.publication.license_address,
            }
        )
    return stated | {
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
    publication, (one_way, two_way) = facts.publication, facts.errors
    paired = "" if two_way is None else f", one over two attributes by ± {two_way:,.0f}"
    names = [attribute.name for attribute in facts.schema.attributes]
    asked = ", ".join(repr(name) for name in (names[:1] + names[1:][-1:]))
    listed = facts.schema.attributes[:_MOST_LISTED]
    left_out = facts.schema.n_attributes - len(listed)
    stated = (
        ("Publisher", publication.publisher),
        ("Contact", publication.contact),
        ("License", publication.license),
        ("Address", publication.url),
        ("Published", publication.date),
    )
    parts = [
        f"---\n{yaml(card(facts))}---\n",
        f"# {plain(facts.title)}\n",
        f"{plain(facts.description)}\n",
        table(["", ""], [[what, plain(value or NOT_STATED)] for what, value in stated]) + "\n",
        "## Read this first\n",
        f"- **No record is a person.** A model invented the rows; a likeness to anybody is chance.\n"
        f"- **Every count carries noise.** A count over one attribute is off by about ± {one_way:,.0f} (one standard "
        f"error){paired}. {code(REPORT)} shows error bars for everything.\n"
        "- **Do not** look for single people, read small groups as facts, or use formulas for standard errors of "
        "surveys: they see the sampling of rows and not the noise.\n"
        f"- What more than {facts.together} attributes say together was not measured. Treat it as a hypothesis.\n",
        "## Privacy\n",
        f"{plain(facts.promise)} The noise is {facts.certificate.mechanism}, the composition "
        f"{plain(facts.certificate.composition)}. Costs add up over all releases from the same table. "
        f"{_from_rows(facts)}Everything here was made from {code(MODEL)} alone: using it, however often, costs no "
        "privacy.\n",
        "## Files\n",
        table(["file", "what"], [[code(name), what] for name, what in FILES.items()]) + "\n",
        "## How to compute with error bars\n",
        "For counts over one or two attributes, ask the noisy tables: their errors are known.\n",
        f"```python\nimport sklar  # pip install sklar\n\nmodel = sklar.load({MODEL!r})\n"
        f"table = model.estimate({asked})\n"
        "table.counts, table.standard_errors, table.low, table.high  # 95% intervals\n```\n",
        f"Without Sklar: each row of {code(TABLES)} is one noisy count `value` with noise of scale `scale` "
        f"({'its standard deviation' if facts.certificate.mechanism == 'gaussian' else 'its mean absolute size'}). "
        "Where a cell was measured in several stages, average them with weights `1 / scale**2`; the variance of a sum "
        "of cells is the sum of their variances.\n",
        "For plots, models and wider tables use the synthetic rows. To see what the draw adds, draw again with other "
        "seeds; to see what the noise adds, compare with the noisy tables:\n",
        f"```bash\nsklar sample {MODEL} --rows {facts.rows} --seed 1 --out again.parquet\nsklar verify .\n```\n",
        "## Attributes\n",
        table(
            ["column", "title", "values", "description"],
            [
                [code(each.name), plain(shown_name(each)), _levels(shown_levels(each)), plain(_about(each))]
                for each in listed
            ],
        )
        + (f"\n\n{left_out:,} more are in `schema.toml`.\n" if left_out else "\n"),
        "## Citation\n",
        f"> {plain(facts.citation)}\n",
        f"Rows {facts.rows:,}, seed {facts.seed}. `sklar verify .` in this folder makes every file again from the "
        "model, and says what may be concluded.\n",
    ]
    return "\n".join(parts)


def _from_rows(facts: Facts) -> str:
    named = facts.certificate.read_from_rows
    if not named:
        return ""
    listed = ", ".join(code(name) for name in named[:20]) + (" and others" if len(named) > 20 else "")
    return f"**The promise does not cover the categories and bins of {listed}**: they were read from the records. "


def _levels(levels: tuple[str, ...]) -> str:
    shown = levels if len(levels) <= _MOST_LEVELS else (*levels[: _MOST_LEVELS - 2], "…", levels[-1])
    return ", ".join(plain(level) for level in shown)


def _about(attribute: Any) -> str:
    words = attribute.words
    return " ".join(part for part in (words.description or "", f"Unit: {words.unit}." if words.unit else "") if part)
