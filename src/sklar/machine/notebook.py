"""How results show themselves: as frames of other libraries, and as cards in notebooks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from sklar.machine.extras import require

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# Lines of a table that a card shows.
_SHOWN = 12
_CARD = (
    "border:1px solid #d1d5db;border-radius:6px;padding:10px 14px;margin:4px 0;max-width:52em;overflow-x:auto;"
    "overflow-wrap:anywhere;font-family:system-ui,sans-serif;font-size:13px;line-height:1.45"
)
_CELL = "padding:1px 14px 1px 0;border:0;text-align:left;vertical-align:top"
_QUIET, _LOUD = "color:#6b7280;margin-top:6px", "border-left:4px solid #c2410c;padding-left:8px;margin:6px 0"


class Tabular:
    """What can be seen as a table: columns of equal length by name."""

    __slots__ = ()

    @abstractmethod
    def to_columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns, by name."""

    def to_polars(self) -> pl.DataFrame:
        """As a frame of polars."""
        import polars as pl

        return pl.DataFrame(dict(self.to_columns()))

    def to_pandas(self) -> pd.DataFrame:
        """As a frame of pandas."""
        require("pandas", what="to_pandas", package="pandas", extra="pandas")
        import pandas as pd

        return pd.DataFrame(dict(self.to_columns()))


def html_card(
    title: str,
    facts: Mapping[str, object],
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    verdict: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """A card of HTML that needs no style sheet and no network: a title, a verdict, facts, the head of a table, notes.

    Each line of a verdict and each note stands as a sentence.
    """
    rows = list(zip(*(columns or {}).values(), strict=True))
    lines = "".join(_line((name, value), style=";color:#6b7280") for name, value in facts.items())
    table = f'<table style="border:0">{lines}</table>'
    if columns:
        body = "".join(map(_line, rows[:_SHOWN]))
        table += f'<table style="border:0;margin-top:6px">{_line(tuple(columns), "th")}{body}</table>'
    if len(rows) > _SHOWN:
        table += f"<div>and {len(rows) - _SHOWN:,} more lines</div>"
    above, below = (
        "".join(f'<div style="{style}">{escape(sentence(each))}</div>' for each in told if each)
        for style, told in ((_LOUD, verdict), (_QUIET, notes))
    )
    return f'<div style="{_CARD}"><b>{escape(title)}</b>{above}{table}{below}</div>'


def sentence(text: str) -> str:
    """The same text as a sentence: with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:] + "." * (text[-1:] not in ".!?:")


def _line(values: Sequence[Any], tag: str = "td", style: str = "") -> str:
    """A line of a table; `style` is for its first cell."""
    texts = [f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values]
    cells = (f'<{tag} style="{_CELL}{"" if at else style}">{escape(text)}</{tag}>' for at, text in enumerate(texts))
    return f"<tr>{''.join(cells)}</tr>"
