"""One of two linked tables as a table by itself: noisy tables of people or of events as contingency tables over people.

In tables of people everybody stands in one cell. In tables of events a person's events share one unit: a count says how
many people there are whose events are such, each by as much as that is true of them. It is no count of events, and its
whole is the number of people with events. Noise is what was drawn, in people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sklar.budget.certificate import LinkedMeasured, Measured
from sklar.budget.plan import KINDS, Plan, Stages, plan_linked
from sklar.kernel.queries import Block, Shares, Tables
from sklar.kernel.theorems import Budget, Spend
from sklar.public.events import Part


def measured_part(measured: LinkedMeasured, name: str) -> Measured:
    """What was measured of one of the tables."""
    part, certificate = measured.linked.part(name), measured.certificate
    stated = {"count": "everyone"} if part.of_people else {"count": "events", "public_rows": None}
    blocks = _blocks(part, measured.blocks, certificate.public_rows)
    return Measured(schema=part.schema, blocks=tuple(blocks), certificate=replace(certificate, **stated))


def plan_part(part: Part, budget: Budget) -> tuple[Stages, Spend, dict[str, float]]:
    """What is measured of one of the tables at which scales, in people; what both cost, and by kinds of tables."""
    plan, blocks, costs = plan_linked(part.linked, budget), list[Block](), dict[str, float]()
    for query, scales in plan.parts:
        blocks.append(Block(query=query, scales=scales, values=np.zeros(query.n_cells, dtype=np.int64)))
        if isinstance(query, Shares):
            costs[KINDS[query.what][1]] = float(np.sum((scales / query.each) ** -2.0))
    own = _blocks(part, blocks, 0 if budget.rows_are_public else None)
    first = Plan(parts=tuple((block.query, block.scales) for block in own))
    return Stages(budget=budget, first=first, reserve=np.empty(0)), plan.spend(budget), costs


def _blocks(part: Part, blocks: Sequence[Block], n_people: int | None) -> list[Block]:
    """The number of rows, where it is not public, one-way and two-way tables, where there are any."""
    # In people: whole numbers no more where a person deals several tokens.
    held: dict[str, tuple[Any, Any]] = {
        block.query.what: (block.values / block.query.each, block.scales / block.query.each)
        for block in blocks
        if isinstance(block.query, Shares)
    }
    if part.of_people:
        found = {order: held[kind] for order, kind in enumerate(("people", "person", "person-person")) if kind in held}
    else:
        # One-way tables of events come in two halves, whose noises are independent.
        halves, scales = held["event"]
        sums = [pair.reshape(2, -1).sum(axis=0) for pair in np.split(halves, 2 * part.schema.offsets[1:-1])]
        number, scale = held["number"]
        # People with events: all but those of the first cell, or the sum of all other cells.
        others = number[1:].sum() if n_people is None else n_people - number[0]
        noise = scale * (1 if n_people is not None else (number.size - 1) ** 0.5)
        found = {0: (np.array([others]), noise), 1: (np.concatenate(sums), scales * 2**0.5)}
        found |= {2: held["event-event"]} if "event-event" in held else {}
    return [
        Block(query=Tables(cells=part.schema.cells, order=order), scales=scales.copy(), values=values)
        for order, (values, scales) in found.items()
    ]
