from __future__ import annotations

from itertools import product

import numpy as np

from sklar.fitting.choose import fit_steps
from sklar.fitting.descent import Start
from sklar.fitting.latent import LatentModel
from sklar.public.schema import Schema
from tests.fitting.test_denoise import mixture_joint, noisy_estimates, schema_of
from tests.fitting.test_descent import softmaxed


def random_model(schema: Schema, components: int, seed: int = 0) -> LatentModel:
    logits = 2 * np.random.default_rng(seed).standard_normal((components, schema.n_levels), dtype=np.float32)
    return LatentModel(schema=schema, probabilities=softmaxed(logits.T, schema)[0].T)


def test_predicted_pairs_equal_enumeration() -> None:
    schema = schema_of(2, 3, 2)
    model = random_model(schema, 4)
    joint = np.zeros((7, 7))
    for component in model.probabilities.astype(np.float64):
        for codes in product(*(range(size) for size in schema.sizes)):
            at = schema.offsets[:-1] + np.array(codes)
            chance = component[at].prod() / 4
            for i, j in product(range(3), repeat=2):
                if i != j:
                    joint[at[i], at[j]] += chance
    assert np.allclose(model.predict_pairs(), joint, atol=1e-6)


def test_fit_recovers_the_tables_of_a_known_mixture() -> None:
    schema = schema_of(3, 4, 2, 5)
    joint = mixture_joint(schema, 3, 2)
    cells, levels = schema.cells, np.diag(joint)
    estimates = noisy_estimates(schema, joint, 1_000_000, 1e-6)
    model = fit_steps(estimates, schema, levels, Start(components=60), steps=500, fits=2)
    total_variation = np.abs(cells.flat(model.predict_pairs() - joint)).sum() / 2 / cells.n_pairs
    assert np.abs(cells.flat(np.outer(levels, levels) - joint)).sum() / 2 / cells.n_pairs > 0.1
    assert total_variation < 0.01
    assert np.abs(model.margins() - levels).max() < 0.01


def test_union_holds_every_fit() -> None:
    schema = schema_of(2, 2)
    joint = mixture_joint(schema, 2, 0)
    estimates, levels = noisy_estimates(schema, joint, 1_000_000, 1e-6), np.diag(joint)
    model = fit_steps(estimates, schema, levels, Start(components=10), steps=5, fits=3)
    assert model.n_components == 30
    alone = fit_steps(estimates, schema, levels, Start(components=10, seed=2), steps=5, fits=1)
    # Sums within a product may take another order.
    assert np.allclose(model.probabilities[20:], alone.probabilities, atol=1e-5)
