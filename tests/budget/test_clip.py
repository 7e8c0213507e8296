"""Numbers up to a clip: larger ones have a level of their own, and the mean of all is that of limited numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sklar
from sklar.budget.search import ladder_of
from sklar.draw.decode import Decoder
from sklar.files.model import Model
from sklar.fitting.domains import found_numbers
from sklar.public.schema import Schema
from sklar.rows.encode import coder, encode
from sklar.trust.verify import verify

ENTRY = 'cost = {{ type = "{}", domain = "private", low = 0, {}, bins = 12 }}'
ROWS = 6000
COSTS = np.where(np.arange(ROWS) % 10, 0, np.random.default_rng(1).lognormal(8, 1.2, ROWS)).astype(np.int64)


def clipped(kind: str = "integer", said: str = "clip = 10_000") -> Schema:
    return Schema.from_toml(f"[attributes]\n{ENTRY.format(kind, said)}\nsex = {{ type = 'boolean' }}")


@pytest.fixture(scope="module", params=["integer", "real"])
def model(request: pytest.FixtureRequest) -> Model:
    frame = pl.DataFrame({"cost": COSTS.astype(int if request.param == "integer" else float), "sex": COSTS % 2 == 0})
    return sklar.fit(frame, clipped(request.param), epsilon=2.0)


def test_larger_numbers_have_a_level_of_their_own_and_special_ones_keep_theirs() -> None:
    searching = Schema.from_toml(
        '[attributes]\ncost = { type = "integer", domain = "private", low = 0, clip = 1000, special = [99999] }'
    ).attributes[0]
    attribute = found_numbers(searching, [np.zeros(ladder_of(searching).first().size - 1, dtype=np.int64)] * 4, 30.0)
    schema, values = Schema(name="t", attributes=(attribute,)), [-3, 0, 999, 1000, 1001, 10**12, 99999]
    codes = encode(pl.DataFrame({"cost": values}), schema)[0]
    names = [attribute.levels[code] for code in codes]
    assert names[3:] == ["1000 or more"] * 3 + ["99999"]
    assert "or more" not in names[2]
    assert [coder(attribute)(value) for value in values] == codes.tolist()
    drawn = Decoder(schema).decode(codes[None, :], np.random.default_rng(1))["cost"]
    assert drawn[3:].to_list() == [1000, 1000, 1000, 99999]
    assert Schema.from_toml(schema.to_toml()).attributes == schema.attributes


def test_a_release_with_a_clip_is_saved_verified_and_asked(model: Model, tmp_path: Path) -> None:
    """Its means lie within six standard errors, as all but once in a hundred million releases."""
    model.save(tmp_path / "clip.sklar")
    again = sklar.load(tmp_path / "clip.sklar")
    assert all(check.passed is not False for check in verify(tmp_path / "clip.sklar").checks)
    truth = float(np.minimum(COSTS, 10_000).mean())
    answer = again.infer("mean(cost)", target="table")
    assert answer.limits == {"cost": "[0, 10000]"}
    assert answer.figures[0].estimate == pytest.approx(truth, abs=6 * answer.figures[0].standard_error)
    assert "2 tables of where numbers lie inside bins" in "\n".join(model.summary())
    assert model.sample(2000, seed=1)["cost"].max() == 10_000
    # Nothing beyond the clip is known, and to ask there gives no certain zero.
    assert (model.query("cost > 10000").beyond_most or 0) > 10
    assert model.query("cost >= 10000").beyond_most is None
