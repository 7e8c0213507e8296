"""What commands print: prose, JSON, figures and progress, and the options that choose among them.

How long a stage took depends on the rows: one value of 300 MB takes a second to read. So run times are shown on a
terminal, where the custodian sits, and elsewhere (a log file, another program) only when `--timings` asks for them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from sklar.machine.compiled import telling
from sklar.machine.progress import SILENT, Progress

R = TypeVar("R")


def _switch(name: str, text: str) -> Callable[[Any], Any]:
    """An option that steers what is printed: no argument of the command, but `is_given` by its name."""

    def note(context: click.Context, option: click.Parameter, given: bool) -> None:  # noqa: FBT001
        context.meta[f"sklar.{option.name}"] = given

    return click.option(name, is_flag=True, expose_value=False, callback=note, help=text)


QUIET = _switch("--quiet", "No progress and no prose: print what was asked for, and errors.")
TIMINGS = _switch("--timings", "PRIVATE: tell how long each stage took, off a terminal too. It depends on the rows.")
JSON = _switch("--json", "Print all figures as JSON instead of text.")


def is_given(name: str) -> bool:
    """Whether the command was given --quiet, --timings or --json."""
    return bool(click.get_current_context().meta.get(f"sklar.{name}"))


def say(*lines: str) -> None:
    """Print prose, unless told to be quiet. What a command was asked for is printed with `click.echo`."""
    for line in () if is_given("quiet") else lines:
        click.echo(plain(line))


def plain(text: str) -> str:
    """A text without characters that steer a terminal: they are shown as escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def warn(text: str, head: str = "WARNING") -> None:
    """Print a warning on standard error."""
    click.echo(f"{head}: {text}", err=True)


def finish(document: Any, *lines: str) -> None:
    """Say what a command did: as JSON where that was asked for, else as prose."""
    print_answer(document, (), *lines)


def print_answer(document: Any, lines: Iterable[str], *after: str) -> None:
    """Print what a command was asked for, as JSON or as text; `after` is prose below the text."""
    if is_given("json"):
        import json

        click.echo(json.dumps(document, indent=1, ensure_ascii=False, default=os.fspath))
        return
    for line in lines:
        click.echo(plain(line))
    say(*after)


def print_figures(figures: Any, *, code: int = 0) -> None:
    """Print a result that has `to_dict` and `lines`; with this exit code."""
    print_answer(figures.to_dict(), figures.lines())
    if code:
        sys.exit(code)


class Lines:
    """Progress as plain lines on standard error, one per stage; with run times only when they were asked for."""

    def __init__(self, *, timings: bool) -> None:
        self._timings = timings
        self._name, self._unit, self._steps, self._since = "", "", 0, 0.0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Print what the stage before did, and begin this one."""
        del total
        self.close()
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
            done = f"{self._steps:,} {self._unit}" if self._unit else "done"
            took = f" ({time.monotonic() - self._since:.1f} s)" if self._timings else ""
            click.echo(f"{self._name}: {done}{took}", err=True)


class Bars:
    """Progress as bars on a terminal."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._unit = ""
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<8}"),
            progress.BarColumn(bar_width=30),
            progress.TextColumn("{task.fields[done]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        self._bars.start()

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Finish the bar before, and begin this one."""
        self._finish()
        self._bars.add_task(name, total=total, done="")
        self._unit = unit

    def advance(self, steps: int) -> None:
        """Move the bar."""
        for task in self._bars.tasks[-1:]:
            self._bars.advance(task.id, steps)
            rate = f", {task.speed:,.0f}/s" if task.speed else ""
            self._bars.update(task.id, done=f"{task.completed:,.0f} {self._unit}{rate}")

    def _finish(self) -> None:
        for task in self._bars.tasks[-1:]:
            self._bars.update(task.id, total=task.completed or 1, completed=task.completed or 1)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(f"{text} ...")

    def close(self) -> None:
        """Leave the finished bars on the screen."""
        self._finish()
        self._bars.stop()


def watched(work: Callable[..., R], *arguments: Any, **options: Any) -> R:
    """The result of a function that tells its progress, which is shown."""
    with show_progress() as progress:
        return work(*arguments, progress=progress, **options)


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Bars on a terminal, plain lines elsewhere, both on standard error; nothing when told to be quiet."""
    if is_given("quiet"):
        yield SILENT
        return
    shown = Bars() if sys.stderr.isatty() else Lines(timings=is_given("timings"))
    done = False
    try:
        with telling(shown.note):
            yield shown
        done = True
    finally:
        # A line says that its stage is done; bars must be closed in any case.
        if done or isinstance(shown, Bars):
            shown.close()
