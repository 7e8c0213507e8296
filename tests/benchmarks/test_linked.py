"""The figures of the benchmark of linked tables: zero for equal tables, and what independence loses."""

from __future__ import annotations

from benchmarks.linked import _flat, figures, independent, line, of_join

from sklar.generate.visits import KEY, generate_visits, linked


def test_figures_are_zero_for_equal_tables_only() -> None:
    ((people, visits),) = generate_visits(3_000)
    real = figures(people, visits, linked())
    assert line("same", real, real) == "| same | 0.0 | 0.0 | 0.0 | 0.0 |  |"
    shown = [float(part) for part in line("apart", real, independent(real)).split("|")[2:4]]
    assert min(shown) > 20
    joined = of_join(visits.join(people, on=KEY), linked())
    assert line("join", real, joined).startswith("| join | 0.0 | 0.0 | - | ")
    assert real.number is not None
    assert abs(real.number.sum() - 1) < 1e-9


def test_the_join_is_released_by_person() -> None:
    schema = _flat(linked(), 4)
    assert schema.person is not None
    assert schema.person.rows_per_person == 4
    assert schema.n_attributes == 12
