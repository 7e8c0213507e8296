"""The two-level mixture: its gradient, what it finds in tables with little noise, and that it is repeatable."""

from __future__ import annotations

import numpy as np
import pytest

from sklar.budget.certificate import LinkedMeasured, certify
from sklar.budget.plan import plan_linked
from sklar.draw.sample import LinkedSampler
from sklar.fitting import classes as fitting
from sklar.fitting.classes import fit_classes
from sklar.kernel.theorems import Budget
from sklar.rows.shares import count_tokens, join
from tests.fitting.test_margins import noisy_blocks
from tests.linked import small, tables


def measured(n: int = 400, *, noise: float) -> LinkedMeasured:
    """Tables of tokens, with so much of the noise that is due."""
    linked, budget = small(), Budget(epsilon=1.0, rows_per_person=1)
    plan = plan_linked(linked, budget)
    blocks = noisy_blocks(plan, count_tokens(join(*tables(n), linked), linked, plan), 5, noise)
    return LinkedMeasured(linked=linked, blocks=tuple(blocks), certificate=certify(linked, budget, blocks, n))


def test_the_gradient_is_that_of_the_error() -> None:
    tables_of = measured(noise=0.2)
    layout = fitting._Layout(tables_of)
    shares = [cells / layout.n_people for _, cells, _ in tables_of.tables]
    targets = layout.arrange(shares)
    weights = layout.arrange([np.array([float(k + 1)]) for k in range(len(shares))], precisions=True)
    fit = fitting._ClassFit((layout, targets, weights), 1, 5, 3)
    rng = np.random.default_rng(0)
    for logits, cells, gradient in zip(fit._logits, fit._cells, fit._gradients(), strict=True):
        chances = logits.probabilities
        mean = np.add.reduceat(chances * gradient, cells.offsets[:-1])[cells.attribute_of_level]
        # Gradients are times H / 2, and logits stand in the order of their steps.
        slopes = (2 / 5 * chances * (gradient - mean))[logits._order]
        for _ in range(8):
            place = tuple(int(rng.integers(size)) for size in slopes.shape)
            errors = []
            for step in (0.05, -0.1, 0.05):
                logits._logits[place] += np.float32(step)
                logits._predict()
                fit._predict()
                errors.append(fit.error(targets))
            assert (errors[0] - errors[1]) / 0.1 == pytest.approx(slopes[place], rel=0.02, abs=1e-4)


def test_what_tables_say_plainly_is_found() -> None:
    model, settings = fit_classes(measured(3_000, noise=0.05))
    assert settings["steps"] > 0
    assert settings["gain_over_independence"] > 0.5
    people, events = LinkedSampler(model, 1).draw((0, 4_000))
    joined = events.join(people, left_on="person", right_on="id")
    expected = {"north": "a", "south": "b", "west": "c"}
    right = joined.select(joined["region"].replace_strict(expected) == joined["kind"]).to_series().mean()
    assert isinstance(right, float)
    assert right > 0.8
    numbers = people.join(events.group_by("person").len(), left_on="id", right_on="person", how="left")["len"]
    # One in seven of the people has no events; of 4,000 drawn, 5 sd are 0.03.
    assert abs(numbers.null_count() / 4_000 - 1 / 7) < 0.05


def test_a_fit_is_a_function_of_the_tables_and_holds_probabilities() -> None:
    first, second = (fit_classes(measured(30, noise=1.0))[0].arrays() for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all((chances >= 0).all() for chances in first.values())
