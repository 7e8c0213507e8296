"""Repairs: what comes out is the model given the rules, block by block, whatever the model would have drawn."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sklar.draw.blocks import BLOCK_ROWS, Copula, blocks
from sklar.draw.repair import hold_margins, sample_codes
from sklar.fitting.latent import LatentModel
from sklar.paper.estimate import Probabilities, fit_binary
from sklar.public.rules import violating
from sklar.public.schema import Schema
from tests.draw.test_blocks import dirichlet_model, drawn

RULES: list[Any] = [{"forbid": {"a": "v0", "b": ["v1", "v2"]}}, {"forbid": {"b": "v0", "c": "v1"}}]


def schema(rules: list[Any] = RULES, sizes: tuple[int, ...] = (2, 3, 2, 3)) -> Schema:
    attributes = {
        name: {"type": "categorical", "values": [f"v{v}" for v in range(size)]}
        for name, size in zip("abcd", sizes, strict=True)
    }
    return Schema.from_dict({"attributes": attributes, "rules": rules})


MODEL = dirichlet_model(schema(), 3, 1.0, seed=4)


def joint(model: LatentModel) -> NDArray[np.float64]:
    """Probabilities of all records, shape (2, 3, 2, 3), by adding up components."""
    parts = [np.split(row.astype(np.float64), model.schema.offsets[1:-1]) for row in model.probabilities]
    return np.asarray(np.mean([np.einsum("a,b,c,d->abcd", *part) for part in parts], axis=0))


def test_records_are_the_model_given_the_others_and_the_rules() -> None:
    model, rows = MODEL, 400_000
    whole = joint(model)
    broken = violating(np.array(list(product(*map(range, whole.shape)))).T, model.schema.allowed)
    honored = whole * ~broken.reshape(whole.shape)
    # d stands outside the rules: its margin stays; the others are drawn given it and given that the rules hold.
    expected = honored / honored.sum(axis=(0, 1, 2), keepdims=True) * whole.sum(axis=(0, 1, 2), keepdims=True)
    found = np.zeros(whole.shape)
    np.add.at(found, tuple(drawn(model, rows)), 1 / rows)
    assert 0.1 < 1 - honored.sum() < 0.9
    assert (found[expected == 0] == 0).all()
    # Six binomial standard errors in each of 36 cells: a false failure in 1e7 runs; draws are fixed by the seed anyway.
    assert (np.abs(found - expected) < 6 * np.sqrt(expected / rows) + 1e-9).all()
    assert np.abs(expected - honored / honored.sum()).max() > 10 * np.sqrt(1 / rows)


def test_only_records_that_break_a_rule_change_and_only_in_attributes_of_rules() -> None:
    model, sampler = MODEL, MODEL.sampler()
    before = np.concatenate([sampler.draw(1, *block) for block in blocks(50_000, sampler.block_rows)], axis=1)
    after = drawn(model, 50_000)
    broken = violating(before, model.schema.allowed)
    assert broken.any()
    assert (before[:, ~broken] == after[:, ~broken]).all()
    assert (before[3] == after[3]).all()
    assert not violating(after, model.schema.allowed).any()


def test_without_rules_nothing_changes_and_a_block_depends_on_its_number_alone() -> None:
    plain = replace(MODEL, schema=schema([]))
    assert (drawn(plain, 1000) == plain.sampler().draw(1, 0, 1000)).all()
    assert hold_margins(plain) is plain
    short, long = (list(sample_codes(MODEL, rows, 7)) for rows in (BLOCK_ROWS, 3 * BLOCK_ROWS))
    assert (short[0] == long[0]).all()
    assert (long[1] != long[2]).any()


def test_records_are_found_by_search_where_the_model_would_never_draw_one(monkeypatch: pytest.MonkeyPatch) -> None:
    described = schema()
    certain = np.zeros((1, described.n_levels), dtype=np.float32)
    certain[0, described.offsets[:-1] + np.array([0, 1, 1, 2])] = 1.0
    codes = drawn(LatentModel(schema=described, probabilities=certain), 500)
    assert not violating(codes, described.allowed).any()
    assert (codes[3] == 2).all()
    # An exhausted search falls back on the plain one.
    monkeypatch.setattr("sklar.draw.repair._EFFORT", 0)
    monkeypatch.setattr("sklar.draw.repair.ROUNDS", 0)
    assert not violating(drawn(MODEL, 2000), MODEL.schema.allowed).any()


def near_model() -> LatentModel:
    """A model that all but honors its one rule, as a fit does."""
    described = schema([{"forbid": {"a": "v0", "b": "v1"}}])
    rows = [
        [0.9, 0.1, 0.8, 0.1, 0.1, 0.3, 0.7, 0.2, 0.2, 0.6],
        [0.2, 0.8, 0.1, 0.8, 0.1, 0.7, 0.3, 0.6, 0.2, 0.2],
        [0.7, 0.3, 0.3, 0.1, 0.6, 0.5, 0.5, 0.1, 0.8, 0.1],
    ]
    return LatentModel(schema=described, probabilities=np.array(rows, dtype=np.float32))


def margin_errors(models: tuple[Copula, Copula], target: NDArray[np.floating[Any]]) -> tuple[float, ...]:
    """How far the margins of records of each model are from these; every record honors the rules."""
    errors = []
    for each in models:
        codes = drawn(each, 200_000, seed=3)
        assert not violating(codes, each.schema.allowed).any()
        shares = np.bincount((codes + each.schema.offsets[:-1, None]).ravel(), minlength=10) / 200_000
        errors.append(float(np.abs(shares - target).max()))
    return tuple(errors)


def test_holding_margins_brings_them_back_and_leaves_other_attributes_alone() -> None:
    model = near_model()
    held = hold_margins(model)
    assert np.array_equal(held.probabilities[:, 5:], model.probabilities[:, 5:])
    before, after = margin_errors((model, held), model.probabilities.mean(axis=0))
    assert before > 0.02
    assert after < 0.4 * before


def test_records_of_the_binary_copula_honor_the_rules_and_keep_their_margins() -> None:
    model = near_model()
    levels = model.probabilities.mean(axis=0, dtype=np.float64)
    pairs = model.schema.cells.flat(model.predict_pairs().astype(np.float64))
    given = Probabilities(cells=model.schema.cells, levels=levels, pairs=pairs)
    copula = fit_binary(given, model.schema, dummies=False, weighted=True)
    before, after = margin_errors((copula, hold_margins(copula)), copula.levels)
    assert before > 0.01
    assert after < 0.4 * before
