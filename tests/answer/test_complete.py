"""Rows that are completed keep what was given, and get the rest from the model's conditional distribution."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest
from scipy.stats import chi2

from sklar.answer.condition import complete_rows
from sklar.errors import ModelError
from sklar.fitting.latent import LatentModel
from tests.draw.test_given import PLAIN, RULES, law, model_of, shapes_of

DETERMINED = """
attributes.side = {type = "categorical", values = ["up", "down"]}
[[rules]]
attribute = "side"
determined_by = "area"
map = {North = "up", South = "down", West = "down"}
"""


def completed(model: LatentModel, rows: Any, seed: int = 3) -> pl.DataFrame:
    return complete_rows(model, rows, shapes_of(model), seed)


@pytest.mark.parametrize("text", [PLAIN, PLAIN + RULES], ids=["plain", "rules"])
@pytest.mark.parametrize("given", [{"area": 1}, {"role": 0}, {"role": 2, "area": 0}], ids=str)
def test_filled_values_have_the_models_conditional_distribution(given: dict[str, int], text: str) -> None:
    """A right sampler fails one of these six less than once in a hundred million runs; the seed is fixed besides."""
    model, rows, names = model_of(text), 8_000, ("area", "sex", "role")
    schema = model.schema
    found = completed(model, pl.DataFrame({n: [schema.attribute(n).levels[code]] * rows for n, code in given.items()}))
    assert found.columns == list(schema.names)
    assert found.null_count().sum_horizontal().item() == 0
    drawn, expected = Counter(found.select(names).iter_rows()), defaultdict[Any, float](float)
    # The age is never missing, and is summed over.
    for record, chance in law(model.probabilities, schema).items():
        codes = dict(zip(schema.names, record, strict=True))
        if chance > 0 and codes["age"] != schema.attribute("age").missing_code and given.items() <= codes.items():
            expected[tuple(schema.attribute(name).levels[codes[name]] for name in names)] += chance
    assert sum(drawn[key] for key in expected) == rows
    scale = rows / sum(expected.values())
    distance = sum((drawn[key] - scale * chance) ** 2 / (scale * chance) for key, chance in expected.items())
    assert chi2.sf(distance, len(expected) - 1) > 1e-9


def test_what_was_given_is_kept_and_determines_the_rest() -> None:
    model = model_of(PLAIN + DETERMINED + RULES)
    given: dict[str, Any] = {"age": [33, 40, None, 89], "role": ["Wife", None, "Husband", None]}
    partial = pl.DataFrame(given | {"side": ["up", "down", None, "down"], "area": [None, None, "North", "West"]})
    found = completed(model, partial)
    assert found["age"].to_list()[:2] == [33, 40]
    assert (found["sex"][0], found["sex"][2], found["area"][0]) == ("Female", "Male", "North")
    assert found["area"][1] in ("South", "West")
    assert found["side"].to_list() == ["up", "down", "up", "down"]
    assert completed(model, partial).equals(found)
    assert not found.equals(completed(model, partial, seed=4))
    # The same from pandas, where not a number is null.
    assert completed(model, partial.to_pandas()).equals(found)
    assert completed(model, found).equals(found)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"age": 3}], "must be a table of polars, pandas or Arrow, got list. Read a file first: polars.read_csv."),
        (pl.DataFrame({"Age": [3]}), "no attribute 'Age'. Drop or rename that column; it has: area, age"),
        (pl.DataFrame({"age": [99]}), "column 'age': '99' is outside the attribute's domain. Correct it, or make it"),
        (pl.DataFrame({"area": ["East"]}), "column 'area': 'East' is outside the attribute's domain."),
        (pl.DataFrame({"sex": ["Male"], "role": ["Wife"]}), "row 1 breaks a rule of the schema, whatever is filled"),
        (pl.DataFrame({"area": ["West"], "side": ["up"]}), "row 1: its values contradict the rule by which 'area'"),
        (pl.DataFrame({"age": ["[0, 30)"]}), "column 'age' must be of type Int64 or convert to it, got String."),
    ],
)
def test_rows_that_cannot_be_completed_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ModelError) as refused:
        completed(model_of(PLAIN + DETERMINED + RULES), rows)
    assert message in str(refused.value)
