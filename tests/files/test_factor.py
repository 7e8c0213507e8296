"""A model that `--method factor` made before the option went: it loads, draws the same rows and verifies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sklar.files.archive import load
from sklar.trust.verify import verify

FILE = Path(__file__).parent / "factor.sklar"


def test_a_factor_model_of_an_earlier_version_is_read_sampled_and_verified(tmp_path: Path) -> None:
    model = load(FILE)
    assert model.settings["kind"] == "factor"
    assert "Model: factor, 1,000 components from 2 fits of 80 steps." in model.summary()
    assert model.sample(5, seed=1).rows() == [
        ("red", "small", 2),
        ("blue", "small", 56),
        ("blue", "small", 40),
        ("blue", "small", 48),
        ("blue", "small", 43),
    ]
    counts = np.unique(model.sample(3_000, seed=1)["color"].to_numpy(), return_counts=True)[1]
    assert np.abs(counts - 3_000 * model.copula.margins()[[2, 1, 0]]).max() < 3
    assert verify(FILE).passed
    model.save(tmp_path / "again.sklar")
    assert load(tmp_path / "again.sklar").sample(50, seed=2).equals(model.sample(50, seed=2))
    # That it cannot be fitted again contradicts nothing.
    verified = verify(FILE, refit=True)
    assert verified.passed
    assert verified.checks[-1].passed is None
    assert "\n".join(verified.lines()).count("n/a  refit: not possible: this version of Sklar fits no model of") == 1
    assert verified.lines()[-1] == (
        "The model was not recomputed: whether it follows from its tables alone was not checked."
    )
    assert json.loads(json.dumps(verified.to_dict()))["checks"][-1]["passed"] is None
