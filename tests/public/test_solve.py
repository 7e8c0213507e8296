"""The search for a record that honors all rules: it finds one, proves that there is none, or stops in time."""

from __future__ import annotations

import numpy as np
import pytest

from sklar.public.rules import EffortError, SearchSteps, groups, solve


def test_a_search_finds_a_record_or_proves_that_there_is_none() -> None:
    differ = ~np.eye(2, dtype=bool)
    allowed = {(0, 1): differ, (1, 2): differ, (0, 2): differ}
    domains = {i: np.ones(2, dtype=bool) for i in range(3)}
    assert solve(domains, allowed, effort=SearchSteps(1000)) is None
    found = solve(domains, {(0, 1): differ, (1, 2): differ}, effort=SearchSteps(1000))
    assert found is not None
    assert found[0] != found[1] != found[2]
    with pytest.raises(EffortError):
        solve(domains, allowed, effort=SearchSteps(3))


def test_levels_are_tried_in_the_order_asked_for() -> None:
    domains = {i: np.ones(3, dtype=bool) for i in range(2)}
    allowed = {(0, 1): np.eye(3, dtype=bool)}
    found = solve(domains, allowed, effort=SearchSteps(1000), order=lambda _attribute, codes: codes[::-1].tolist())
    assert found == {0: 2, 1: 2}


def test_attributes_are_grouped_by_the_rules_that_tie_them_together() -> None:
    free = np.ones((2, 2), dtype=bool)
    assert groups({(0, 3): free, (1, 2): free, (3, 4): free}) == [[0, 3, 4], [1, 2]]
