"""The experiment on inference: its counts and classical answers are right, and it runs from end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from experiments.asked import Rows, census_cases, counts_of

from experiments import asked, inference
from sklar.answer.infer import answer_to
from sklar.answer.infer.inquiry import Inquiry
from sklar.rows.count import count_plainly


@pytest.fixture(scope="module", autouse=True)
def smaller() -> object:
    """A population and tables that a test can afford."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked, "POPULATION_ROWS", 6_000)
        patch.setattr(asked, "TABLE_ROWS", 1_500)
        patch.setattr(asked, "EPSILONS", (4.0, 8.0))
        yield


def test_counts_and_classical_answers_are_those_of_the_rows() -> None:
    case = census_cases()[0]
    rows = case.truth.codes
    ours, plain = counts_of(rows, case.schema), count_plainly(rows.T, case.schema.cells)
    assert np.array_equal(ours.one_way, plain.one_way)
    assert np.array_equal(ours.pairs, plain.pairs)
    model = inference.release(case, np.random.default_rng(1))
    inquiry = Inquiry(model, "share(employed = true) by sex")
    found = answer_to(inference.AsIfReal(inquiry, Rows(rows, case.schema.sizes))).figures[1]
    men = rows[rows[:, case.schema.names.index("sex")] == 1]
    share = float(men[:, case.schema.names.index("employed")].mean())
    assert found.estimate == pytest.approx(share)
    assert found.standard_error == pytest.approx(math.sqrt(share * (1 - share) / len(men)), rel=0.02)


@pytest.mark.slow
def test_it_runs_saves_and_goes_on(tmp_path: Path) -> None:
    arguments = ["--table", "census", "--times", "1", "--direct", "60", "--tested", "5"]
    arguments += ["--out", str(tmp_path), "--saved", str(tmp_path)]
    done = CliRunner().invoke(inference.main, arguments)
    assert done.exit_code == 0, done.exception
    page = (tmp_path / "inference.md").read_text()
    assert "| census, epsilon 8, add-remove (1; 60) |" in page
    kept = json.loads((tmp_path / "census.json").read_text())
    assert kept["releases"] == dict.fromkeys(kept["releases"], 1)
    sums = kept["sums"]["census, epsilon 4"]
    # 60 releases, of which 90% at least hold the mean; by chance fewer do less than once in a million: 45.
    assert sums["means"]["mean(age)"]["drawn"] == 60
    assert sums["means"]["mean(age)"]["drawn_ours"] >= 45
    assert sum(test["n"] for test in sums["independence"].values()) == 7
    assert all(test["drawn"] == 5 for test in sums["independence"].values())
    assert sums["correlations"]["corr(age, children)"]["drawn"] == 12
    assert CliRunner().invoke(inference.main, arguments).exit_code == 0
    assert json.loads((tmp_path / "census.json").read_text()) == kept
