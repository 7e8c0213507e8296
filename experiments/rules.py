"""Rules in the schema, on Adult: does every record honor them, and what do they do to accuracy?

`education` determines `education-num`, and husbands and wives have a sex and a marital status. The same table is
released with and without the rules, and judged twice: by all attributes, and by those that both releases measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from experiments import data, record
from experiments.figures import dots
from sklar.budget.method import MethodName
from sklar.custodian.check import broken_rules
from sklar.custodian.evaluate import evaluate
from sklar.public.schema import Schema
from sklar.release import fit

EPSILON = 1.0
METHODS: tuple[MethodName, ...] = ("auto", "binary")

# By years of schooling: the order that education-num counts.
EDUCATION = (
    *("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college"),
    *("Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate"),
)
RULES = [
    {
        "attribute": "education-num",
        "determined_by": "education",
        "map": {name: number for number, name in enumerate(EDUCATION, start=1)},
    },
    {"forbid": {"sex": "Male", "relationship": "Wife"}},
    {"forbid": {"sex": "Female", "relationship": "Husband"}},
    {
        "forbid": {
            "relationship": ["Husband", "Wife"],
            "marital-status": ["Divorced", "Never-married", "Separated", "Widowed"],
        }
    },
]


def with_rules(schema: Schema) -> Schema:
    """The same schema with this experiment's rules."""
    return Schema.from_dict(schema.to_dict() | {"rules": RULES})


def measure(dataset: data.Dataset, draws: int) -> dict[str, Any]:
    """Broken rules and mean total variation distances of every draw, for JSON."""
    plain, ruled = dataset.schema, with_rules(dataset.schema)
    measured = replace(plain, attributes=ruled.measured.attributes)
    found: dict[str, Any] = {}
    for method in METHODS:
        for name, schema in (("without rules", plain), ("with rules", ruled)):
            runs: dict[str, list[Any]] = {"broken": [], "all attributes": [], "measured attributes": []}
            for seed in range(1, draws + 1):
                rows = fit(dataset.path, schema, epsilon=EPSILON, method=method).sample(seed=seed)
                runs["broken"].append(broken_rules(rows, ruled))
                for judged, by in (("all attributes", plain), ("measured attributes", measured)):
                    results = evaluate(dataset.path, rows, by).results
                    runs[judged].append({each.name: each.tv for each in results if each.tv is not None})
            found[f"{method}, {name}"] = runs
            click.echo(f"{method}, {name}: done", err=True)
    return {"rows": rows.height, "broken in the real rows": broken_rules(dataset.path, ruled), "runs": found}


def markdown(results: Mapping[str, Any]) -> str:
    """Two tables: rules that were broken, and distances."""
    kinds = record.CLASSES[:3]
    broken = record.table(
        ["rows that break", *(f"rule {number}" for number in range(1, len(RULES) + 1))],
        [
            ["the real table", *results["broken in the real rows"]],
            *(
                [name, *(record.spread([run[number] for run in runs["broken"]], 0) for number in range(len(RULES)))]
                for name, runs in results["runs"].items()
            ),
        ],
    )
    distances = [
        [f"{name}: {judged}", *(record.spread([run[kind] for run in runs[judged]], 4) for kind in kinds)]
        for name, runs in results["runs"].items()
        for judged in ("all attributes", "measured attributes")
    ]
    sentences = (
        "Rules that the schema states hold in every record of a release. What does that cost, or gain? The picture has "
        "the mean total variation of two-way tables from the real table, with the rules and without."
    )
    methods = (
        f"Adult, {results['rows']:,} rows, epsilon = {EPSILON:g}. Rule 1: `education` determines `education-num`. "
        "Rules 2 and 3: no male wife, no female husband. Rule 4: no husband or wife is divorced, never married, "
        "separated or widowed. Means over the draws (and their range). *Measured attributes* are all but "
        "`education-num`."
    )
    tables = f"{broken}\nMean total variation distance from the real table:\n\n{record.table(['', *kinds], distances)}"
    return record.told("Rules in the schema", sentences, tables, methods)


@click.command()
@record.options
@click.option("--draws", type=int, default=3, show_default=True, help="Fresh draws of noise.")
def main(data_folder: Path | None, out: Path, *, draws: int) -> None:
    """Records that honor the rules, and accuracy with and without them, on Adult."""
    results = measure(data.from_folder("adult", data_folder), draws)
    document = {"header": record.header("rules", epsilon=EPSILON), "results": results}
    series = {
        judged: {name: record.mean([run["two-way"] for run in runs[judged]]) for name, runs in results["runs"].items()}
        for judged in ("all attributes", "measured attributes")
    }
    pictures = {"rules": dots("With rules and without", "mean total variation of two-way tables", series)}
    record.write(out, "rules", document=document, markdown=markdown(results), figures=pictures)


if __name__ == "__main__":
    main()
