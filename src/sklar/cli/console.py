"""What commands print: prose, JSON, figures and progress, and the options that silence or time them.

How long a stage took depends on the rows: one value of 300 MB takes a second to read. So run times are shown on a
terminal, where the custodian sits, and elsewhere (a log file, another program) only when `--timings` asks for them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from sklar.machine.compiled import telling
from sklar.machine.progress import SILENT

if TYPE_CHECKING:
    from sklar.machine.progress import Progress

_QUIET, _TIMINGS = "sklar.quiet", "sklar.timings"


def _be_quiet(context: click.Context, _option: click.Parameter, quiet: bool) -> None:  # noqa: FBT001
    context.meta[_QUIET] = quiet


def _take_times(context: click.Context, _option: click.Parameter, timings: bool) -> None:  # noqa: FBT001
    context.meta[_TIMINGS] = timings


def quiet_option() -> click.Option:
    """The option that every command has."""
    return click.Option(
        ["--quiet"],
        is_flag=True,
        callback=_be_quiet,
        expose_value=False,
        help="No progress and no prose: print what was asked for, and errors.",
    )


def timings_option() -> click.Option:
    """The option that every command with stages has."""
    return click.Option(
        ["--timings"],
        is_flag=True,
        callback=_take_times,
        expose_value=False,
        help="PRIVATE: tell how long each stage took, off a terminal too. It depends on the rows.",
    )


def is_quiet() -> bool:
    """Whether this command was told to be quiet."""
    return bool(click.get_current_context().meta.get(_QUIET))


def say(text: str) -> None:
    """Print prose, unless told to be quiet. What a command was asked for is printed with `click.echo`."""
    if not is_quiet():
        click.echo(text)


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    import json

    click.echo(json.dumps(document, indent=1, ensure_ascii=False, default=os.fspath))


class Figures(Protocol):
    """A result that can be shown as JSON and as lines of text."""

    def to_dict(self) -> dict[str, Any]:
        """All figures, by name."""

    def lines(self) -> list[str]:
        """What a person reads."""


def print_figures(found: Figures, *, as_json: bool) -> None:
    """Print what a command was asked for, as JSON or as text."""
    if as_json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        click.echo(line)


class Lines:
    """Progress as plain lines on standard error, one per stage; with run times only when they were asked for."""

    def __init__(self, *, timings: bool) -> None:
        self._timings = timings
        self._name, self._unit, self._steps, self._since = "", "", 0, 0.0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Print what the stage before did, and begin this one."""
        self.close()
        del total
        self._name, self._unit, self._steps, self._since = name, unit, 0, time.monotonic()

    def advance(self, steps: int) -> None:
        """Count steps."""
        self._steps += steps

    def note(self, text: str) -> None:
        """Print a line beside the stages."""
        click.echo(f"{text} ...", err=True)

    def close(self) -> None:
        """Print what the last stage did."""
        if self._name:
            done = f" {self._steps:,} {self._unit}" if self._unit else ""
            took = f" ({time.monotonic() - self._since:.1f} s)" if self._timings else ""
            click.echo(f"{self._name}:{done or ' done'}{took}", err=True)
        self._name = ""


class Bars:
    """Progress as bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._unit = ""
        self._bars.start()

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Finish the bar before, and begin this one."""
        self._finish()
        self._task = self._bars.add_task(name, total=total, done="")
        self._unit = unit

    def advance(self, steps: int) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._bars.advance(self._task, steps)
        task = self._bars.tasks[self._bars.task_ids.index(self._task)]
        rate = f", {task.speed:,.0f}/s" if task.speed else ""
        self._bars.update(self._task, done=f"{task.completed:,.0f} {self._unit}{rate}")

    def _finish(self) -> None:
        if self._task is not None:
            task = self._bars.tasks[self._bars.task_ids.index(self._task)]
            self._bars.update(self._task, total=task.completed or 1, completed=task.completed or 1)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(f"{text} ...")

    def close(self) -> None:
        """Leave the finished bars on the screen."""
        self._finish()
        self._bars.stop()


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Bars on a terminal, plain lines elsewhere, both on standard error; nothing when told to be quiet."""
    if is_quiet():
        yield SILENT
        return
    shown = Bars() if sys.stderr.isatty() else Lines(timings=bool(click.get_current_context().meta.get(_TIMINGS)))
    try:
        with telling(shown.note):
            yield shown
    except BaseException:
        if isinstance(shown, Bars):
            shown.close()
        raise
    else:
        shown.close()
