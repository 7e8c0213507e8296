"""What one judge says of rows beside real ones, as a program inside the judge's own environment: no sklar here.

    python -m benchmarks.judges.judging JUDGE TRAIN.csv TEST.csv JUDGED.csv --columns '["a", "b"]'

TRAIN are the rows that were released, TEST are real rows that were not, JUDGED what is to be scored. The last line
that is printed is the judge's figures. Columns are numbers, times and categories by `benchmarks/oracle.py`, from TRAIN
alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from benchmarks.oracle import kind_of, labels, numbers, times

# Rows that the judges look at, at most; mostlyai-qa takes a minute or two of a core for these.
ROWS, MOSTLY_ROWS, EMBEDDED, ATTACKS = 10_000, 5_000, 1_000, 300
# SDNist's percentile bins of numbers.
NIST_BINS = 20
Figures = dict[str, float]


def typed(frame: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Texts as numbers, times and categories.

    >>> typed(pd.DataFrame({"a": ["1", "x"], "b": ["1.0", ""]}), {"a": "number", "b": "category"}).values.tolist()
    [[1.0, '1'], [nan, '(missing)']]
    """
    read: Mapping[str, Callable[[pd.Series], pd.Series]] = {
        "number": numbers,
        "time": lambda each: pd.to_datetime(times(each), unit="s"),
        "category": labels,
    }
    return pd.DataFrame({name: read[kind](frame[name]) for name, kind in kinds.items()})


def some(frame: pd.DataFrame, rows: int = ROWS) -> pd.DataFrame:
    """At most so many rows, at random."""
    return frame.sample(min(rows, len(frame)), random_state=1)


def by_sdmetrics(train: pd.DataFrame, judged: pd.DataFrame, kinds: Mapping[str, str]) -> Figures:
    """The quality report of sdmetrics: its overall score, and the parts of single columns and of pairs."""
    from sdmetrics.reports import QualityReport  # type: ignore[import-not-found]

    sdtypes = {"number": "numerical", "time": "datetime", "category": "categorical"}
    described = {"columns": {name: {"sdtype": sdtypes[kind]} for name, kind in kinds.items()}}
    report = QualityReport()
    both = ({"t": some(each)} for each in (train, judged))
    report.generate(*both, {"tables": {"t": described}}, verbose=False)
    parts = dict(report.get_properties()[["Property", "Score"]].itertuples(index=False))
    return {"score": report.get_score(), "columns": parts["Column Shapes"], "pairs": parts["Column Pair Trends"]}


def by_mostlyai(train: pd.DataFrame, test: pd.DataFrame, judged: pd.DataFrame) -> Figures:
    """The overall accuracy of mostlyai-qa, and how well a classifier tells the rows from real ones (AUC)."""
    from tempfile import TemporaryDirectory

    from mostlyai import qa  # type: ignore[import-not-found]

    with TemporaryDirectory() as folder:
        given = {"trn_tgt_data": train, "hol_tgt_data": test, "syn_tgt_data": judged}
        given = {name: some(each, MOSTLY_ROWS) for name, each in given.items()}
        page = f"{folder}/report.html"
        _, found = qa.report(**given, report_path=page, max_sample_size_embeddings=EMBEDDED)
    accuracy, similar = found.accuracy, found.similarity
    return {"score": accuracy.overall, "auc": similar.discriminator_auc_training_synthetic}


def nist_bins(train: pd.DataFrame, judged: pd.DataFrame, kinds: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both with numbers and times in the percentile bins of the first, as SDNist bins them; missing ones are -1.

    >>> train, judged = (pd.DataFrame({"a": values}) for values in ([0.0] * 19 + [5.0], [-1.0, 0.5, 9.0, np.nan]))
    >>> [set(each["a"]) for each in nist_bins(train, judged, {"a": "number"})]
    [{10, 19}, {19, 10, -1}]
    """
    train, judged = train.copy(), judged.copy()
    for name in (name for name, kind in kinds.items() if kind != "category"):
        values = [pd.to_numeric(each[name]).astype(float).where(each[name].notna()) for each in (train, judged)]
        places = (values[0].rank(pct=True) * NIST_BINS).clip(upper=NIST_BINS - 1).dropna().astype(int)
        # A bin reaches to the largest value that stands in it.
        tops = values[0].groupby(places).max()
        codes = tops.index.to_numpy()
        for frame, each in zip((train, judged), values, strict=True):
            found = codes[np.minimum(np.searchsorted(tops.to_numpy(), each.fillna(0)), len(codes) - 1)]
            frame[name] = np.where(each.isna(), -1, found)
    return train, judged


def by_sdnist(train: pd.DataFrame, judged: pd.DataFrame, kinds: Mapping[str, str]) -> Figures:
    """SDNist's k-marginal by its own code: 1000 less 500 times the mean L1 distance of all two-way tables of shares."""
    # Its metrics and its report import each other, and load in this order alone.
    import sdnist.report  # type: ignore[import-not-found]  # noqa: F401
    from sdnist.metrics.kmarginal import KMarginal  # type: ignore[import-not-found]

    return {"score": KMarginal(*nist_bins(train, judged, kinds), []).compute_score()}


def by_anonymeter(train: pd.DataFrame, test: pd.DataFrame, judged: pd.DataFrame, kinds: Mapping[str, str]) -> Figures:
    """Anonymeter's risks over those of real rows that were not released: singling out, and inferring the last category.

    `reach` is the upper end of a 95% interval of the risk.
    """
    from anonymeter.evaluators import InferenceEvaluator, SinglingOutEvaluator  # type: ignore[import-not-found]

    secret = [name for name, kind in kinds.items() if kind == "category"][-1]
    asked = {"ori": some(train), "syn": some(judged), "control": some(test), "n_attacks": ATTACKS}
    known = [name for name in kinds if name != secret]
    single = SinglingOutEvaluator(**asked, seed=1).evaluate(mode="univariate").risk()
    infer = InferenceEvaluator(**asked, aux_cols=known, secret=secret).evaluate().risk()
    return {"singling": single.value, "singling_reach": single.ci[1], "inference": infer.value} | {
        "inference_reach": infer.ci[1]
    }


def main() -> None:
    """Read, judge, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judge", choices=("sdmetrics", "mostlyai", "sdnist", "anonymeter"))
    for name in ("train", "test", "judged", "--columns"):
        parser.add_argument(name)
    given = parser.parse_args()
    columns = json.loads(given.columns)
    texts = [
        pd.read_csv(path, dtype=str, keep_default_na=False)[columns] for path in (given.train, given.test, given.judged)
    ]
    kinds = {name: kind_of(texts[0][name]) for name in columns}
    train, test, judged = (typed(each, kinds) for each in texts)
    said: Mapping[str, Callable[[], Figures]] = {
        "sdmetrics": lambda: by_sdmetrics(train, judged, kinds),
        "mostlyai": lambda: by_mostlyai(train, test, judged),
        "sdnist": lambda: by_sdnist(train, judged, kinds),
        "anonymeter": lambda: by_anonymeter(train, test, judged, kinds),
    }
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = said[given.judge]()
    sys.stdout.write(json.dumps({name: round(float(value), 5) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    main()
