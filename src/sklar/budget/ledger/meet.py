"""A ledger and its anchor: what they owe each other, so that no kill wedges a ledger and no rollback passes.

**Protocol** of `charge`, and of whatever else appends an entry. L is the ledger, with entries 1..n; A is its anchor,
which holds a mark (c, the head after entry c).

    1. Lock L and meet A: require c <= n and that the head after entry c of L is A's; where c < n, advance A from its
       mark to the end of L. Then append entry n + 1, and commit.
    2. Lock L and meet A again, which tells it of the entry. Require that L still holds the entry.
    3. Return. Only now may noise be drawn.

States after a kill at any moment, by what is on the disk: (S0) neither knows of the entry; (S1) L has it, A does not;
(S2) both have it. There are no others, since A is told only of entries that were read from L after their commit. In
each of them L and A can meet, so a kill never wedges a ledger, and whoever writes next mends S1. In S0 nothing was
charged and nothing drawn. In S1 the budget is charged and nothing was drawn: budget may be lost, never hidden. The
entry of step 1 is the intent, the mark of step 2 makes it final.

*Proof of the claim.* Let tables be drawn; their charge is entry k, and step 2 ended with a mark c >= k of a chain that
holds it. A's marks only grow, and each follows one that its writer had compared with a chain (`Anchor.advance` lets one
writer follow a mark, so a copy of L that is written at the same time loses the race, and finds out in step 2 before
anything is drawn). Heads are collision-free, so every ledger that passes step 1 from then on holds the same entries
1..c, entry k among them.

The proof rests on L's naming A. These do not: a backup from before L had an anchor, an L whose anchor was replaced as
lost by order of the custodian (an entry says so), and, without a key, an L that somebody rewrote to name another. And
it rests on A: taken back together with L, it knows no better. Receipts of published releases do: see
`budget.ledger.check`.

A ledger without an anchor keeps the claim as long as its file is not taken back in time; its inode tells of copies. A
ledger whose anchor holds no mark yet is in the middle of its set-up: step 1 makes one before anything is charged.
"""

from __future__ import annotations

from sklar.budget.ledger.anchor import Anchor, Mark, open_anchor
from sklar.budget.ledger.chain import Pages
from sklar.errors import LedgerError


def require_mark(pages: Pages) -> tuple[Anchor | None, Mark | None]:
    """The ledger's anchor and its last mark, which the ledger is required to contain."""
    setups = pages.setups
    if not setups or setups[-1][1].anchor is None:
        return None, None
    number, setup = setups[-1]
    anchor = open_anchor(str(setup.anchor))
    mark = anchor.last(setup.ledger)
    if mark is None and any(entry.kind == "charge" for entry in pages.entries[number:]):
        raise LedgerError(
            f"the anchor {anchor.name} has no mark of ledger '{pages.path}', though it had one before the last "
            "charge: it was replaced or taken back. Bring it back as it was."
        )
    _require(pages, anchor, mark)
    return anchor, mark


def tell_anchor(pages: Pages, anchor: Anchor, mark: Mark | None) -> None:
    """Advance the anchor from its mark to the end of a ledger that is locked, before anything is appended."""
    end = Mark(entries=len(pages.entries), head=pages.entries[-1].head)
    if mark is None:
        _retire(pages)
    while mark != end and not anchor.advance(pages.setups[-1][1].ledger, mark, end):
        # Another writer came between, with a copy of this ledger: the check says so, or the copy is the same.
        _, mark = require_mark(pages)


def _require(pages: Pages, anchor: Anchor, mark: Mark | None) -> None:
    if mark is None:
        return
    missing = mark.entries - len(pages.entries)
    if missing > 0:
        raise LedgerError(
            f"ledger '{pages.path}' is older than its anchor {anchor.name}: it has {len(pages.entries):,} entries, "
            f"and the anchor has seen {mark.entries:,}. It was restored from a copy, and {missing:,} are missing. "
            "Put the newest copy back; what the missing ones spent cannot be known otherwise."
        )
    if pages.entries[mark.entries - 1].head != mark.head:
        raise LedgerError(
            f"ledger '{pages.path}' is not the one that its anchor {anchor.name} has seen: they differ in entry "
            f"{mark.entries:,} or before it. A copy was charged, or entries were rewritten. Put the one back that "
            "the anchor has seen."
        )


def _retire(pages: Pages) -> None:
    """Tell the anchor before this one of the change: else a backup from before it would pass there for ever.

    It comes before the first mark of the new anchor, without which nothing is charged.
    """
    setups = pages.setups
    if len(setups) < 2 or setups[-1][1].lost:
        return
    (_, before), (number, now) = setups[-2:]
    if before.anchor is None or before.anchor == now.anchor:
        return
    anchor, end = open_anchor(before.anchor), Mark(entries=number, head=pages.entries[number - 1].head)
    mark = anchor.last(before.ledger)
    while mark is None or mark.entries < number:
        anchor.advance(before.ledger, mark, end)
        mark = anchor.last(before.ledger)
        _require(pages, anchor, mark)
