"""Generated patients and visits: a seed means the same rows, keys agree, and there is dependence to be found."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from sklar.errors import DataError
from sklar.generate.visits import KEY, MOST, generate_visits, linked
from sklar.rows.encode import encode


def both(patients: int, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    blocks = list(generate_visits(patients, seed=seed))
    return pl.concat([block[0] for block in blocks]), pl.concat([block[1] for block in blocks])


def test_fewer_patients_are_the_beginning_of_more() -> None:
    few, more = both(9_000), both(10_000)
    assert more[0].head(9_000).equals(few[0])
    assert more[1].head(few[1].height).equals(few[1])
    assert not both(9_000, seed=1)[0].equals(few[0])


def test_visits_are_as_described() -> None:
    patients, visits = both(8_000)
    assert patients[KEY].to_list() == list(range(1, 8_001))
    assert visits[KEY].is_in(patients[KEY].implode()).all()
    numbers = visits.group_by(KEY).len()["len"]
    assert numbers.max() == MOST
    # One in twenty never comes: 5 sd of 8,000 are 0.012. A mean of 6 has an sd of 0.06.
    assert abs(1 - len(numbers) / 8_000 - 0.05) < 0.013
    assert 5.5 < visits.height / 8_000 < 6.5
    for frame, schema in ((patients, linked().people), (visits, linked().events)):
        codes = encode(frame.select(schema.names), schema)
        assert (codes >= 0).all()
        # Every level occurs.
        assert all(np.unique(row).size == size for row, size in zip(codes, schema.sizes, strict=True))


def test_visits_of_a_patient_are_alike() -> None:
    _, visits = both(8_000)
    first = visits.group_by(KEY, maintain_order=True).agg(pl.all().first(), n=pl.len())
    last = visits.group_by(KEY, maintain_order=True).agg(pl.all().last())
    several = first["n"] > 1
    for name, least in (("department", 0.10), ("diagnosis", 0.03), ("days", 0.05)):
        same = (first[name] == last[name]).filter(several).mean()
        assert isinstance(same, float)
        shares = visits[name].value_counts(normalize=True)["proportion"]
        assert same > float((shares**2).sum()) + least


@pytest.mark.parametrize(("patients", "seed"), [(0, 0), (2.5, 0), (10, -1), (10, "x")])
def test_what_cannot_be_generated(patients: Any, seed: Any) -> None:
    with pytest.raises(DataError, match="must be a whole number"):
        generate_visits(patients, seed=seed)
