"""What the keys of linked tables look like: exact counts, hence private, for the custodian's eyes before a release."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sklar.public.linked import Linked
from sklar.rows.join import LinkedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How people and events hang together: private.

    `unmatched` events have the key of nobody and are dropped; `beyond` are dropped at random of people who have more
    than the schema's at_most; `repeated` rows of people have the key of an earlier row and are dropped.
    """

    people: int
    events: int
    unmatched: int
    beyond: int
    repeated: int
    without_events: int
    most: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For the custodian."""
        lines = [
            f"PRIVATE: {self.people:,} people with {self.events:,} events that count; {self.without_events:,} people "
            f"have none, {self.most} is the most.",
            f"PRIVATE: {self.unmatched:,} events have a key that no person has, and are dropped.",
            f"PRIVATE: {self.beyond:,} events are dropped at random of people who have more than at_most.",
        ]
        if self.repeated:
            lines.append(f"PRIVATE: {self.repeated:,} rows of people have the key of an earlier row, and are dropped.")
        if self.events == 0:
            lines.append("PRIVATE: no event has a person. Are both keys the same thing, written alike (7 is not 007)?")
        elif self.most <= 1:
            lines.append("PRIVATE: nobody has two events. If the key is unique for every event, it names events.")
        elif self.people == 1:
            lines.append("PRIVATE: there is one person. If the key is the same in every row, it names nobody.")
        return lines


def check_links(people: object, events: object, linked: Linked) -> Links:
    """How the events find their people, exactly: for the custodian alone."""
    joined = LinkedRows(people, events, linked).join()
    return Links(
        people=joined.n_people,
        events=int(joined.begins[-1]),
        unmatched=joined.unmatched,
        beyond=joined.beyond,
        repeated=joined.repeated,
        without_events=int(np.count_nonzero(joined.numbers == 0)),
        most=int(joined.numbers.max(initial=0)),
    )
