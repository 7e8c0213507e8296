"""The benchmarks of people run, on small tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import people, visits
from sklar.generate.visits import KEY
from sklar.rows.encode import encode


@pytest.mark.parametrize("how", ["people", "rows"])
def test_counting_people_is_measured(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people.make(tmp_path, 2_000, 100)
    people.count(tmp_path, how, 8)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"seconds", "cpu_seconds", "peak_bytes", "counted"}
    # The tables are the same in every run: two people have fewer than eight rows.
    assert found["counted"] == (100 if how == "people" else 798)


def test_shares_over_people_weigh_people_alike() -> None:
    rows, schema = visits.joined(200)
    codes = encode(rows.select(schema.names), schema)
    _, person, times = np.unique(rows[KEY].to_numpy(), return_inverse=True, return_counts=True)
    by_rows, by_people = (
        visits.shares(codes, schema, weights) for weights in (np.ones(rows.height), 1 / times[person])
    )
    assert all(table.sum() == pytest.approx(1.0) for table in by_people)
    # Age is a patient's own: over people it is the share of patients.
    patients = rows.unique(KEY).get_column("sex").value_counts()
    women = patients.filter(patients["sex"] == "F")["count"][0] / times.size
    assert by_people[schema.names.index("sex")][0] == pytest.approx(women)
    assert visits.distances(by_rows, by_people, schema.n_attributes)[0] > 0
