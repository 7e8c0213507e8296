"""What analysts do next: predict Adult's income on its real test split after training on synthetic rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments import data, record
from experiments.baselines import DPC
from experiments.errors import EPSILON
from experiments.figures import dots
from sklar.custodian.evaluate import usefulness
from sklar.release import fit

TARGET = "income"


def markdown(results: Mapping[str, Any]) -> str:
    """Accuracy and AUC by training table."""
    rows = [
        [f"{trained}, {learner}", *(record.spread(found[measure], 3) for measure in ("accuracy", "auc"))]
        for trained, learners in results.items()
        for learner, found in learners.items()
    ]
    sentences = (
        "What an analyst would lose by training on synthetic rows. Learners that were trained on each release, and on "
        f"the real rows, predict {TARGET} of people whom no release has seen. Right is better."
    )
    methods = f"Adult, the 16,281 rows of the UCI test split; epsilon = {EPSILON:g}; three runs (and their range)."
    title, shown = "Training on synthetic rows, testing on real ones", ["trained on", "accuracy", "AUC"]
    return record.told(title, sentences, record.table(shown, rows), methods)


@click.command()
@record.options
def main(data_folder: Path | None, out: Path) -> None:
    """Accuracy and AUC on real test rows of learners trained on dpc, on this package's default, and on real rows."""
    dataset = data.from_folder("adult", data_folder)
    test = dataset.path.with_name("adult_test.csv")
    if not test.is_file():
        raise click.ClickException("this experiment needs adult_test.csv beside adult.csv.")
    kinds: dict[str, dict[str, Any]] = {"dpc": {"method": DPC}, "sklar default": {}}
    results: dict[str, Any] = {}
    for name, settings in kinds.items():
        for seed in record.SEEDS:
            rows = fit(dataset.path, dataset.schema, epsilon=EPSILON, **settings).sample(seed=seed)
            for score in usefulness(dataset.path, rows, test, dataset.schema, target=TARGET):
                trained = "real rows" if score.trained_on == "real rows" else name
                into = results.setdefault(trained, {}).setdefault(score.learner, {"accuracy": [], "auc": []})
                if len(into["auc"]) < len(record.SEEDS):
                    into["accuracy"].append(round(score.accuracy, 4))
                    into["auc"].append(round(score.auc, 4))
    series: dict[str, dict[str, float]] = {}
    for trained, learners in results.items():
        for learner, found in learners.items():
            series.setdefault(learner, {})[trained] = record.mean(found["auc"])
    record.write(
        out,
        "learning",
        document={"header": record.header("learning", epsilon=EPSILON, target=TARGET), "results": results},
        markdown=markdown(results),
        figures={"learning": dots("Income, predicted after training", "AUC on real test rows", series)},
    )


if __name__ == "__main__":
    main()
