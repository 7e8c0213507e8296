"""Where the time of a release goes: a `Progress` that reads the clock, and the machine it ran on."""

from __future__ import annotations

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Lap:
    """One stage: wall and CPU seconds (of all threads), steps done, and the process's peak memory up to its end."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    steps: int = 0
    peak_bytes: int = 0


class Stopwatch:
    """Laps of each stage, in the order in which stages first began; a stage that begins again adds to its lap."""

    def __init__(self) -> None:
        self.laps: dict[str, Lap] = {}
        self._name = ""
        self._wall = self._cpu = 0.0

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:  # noqa: ARG002
        """A stage begins, and the one before it is done."""
        self.stop()
        self.laps.setdefault(name, Lap())
        self._name, self._wall, self._cpu = name, time.perf_counter(), time.process_time()

    def advance(self, steps: int) -> None:
        """This many more steps of the present stage are done."""
        self.laps[self._name].steps += steps

    def stop(self) -> None:
        """The present stage, if there is one, is done."""
        if self._name:
            lap = self.laps[self._name]
            lap.seconds += time.perf_counter() - self._wall
            lap.cpu_seconds += time.process_time() - self._cpu
            lap.peak_bytes = peak_bytes()
            self._name = ""


def peak_bytes() -> int:
    """The largest resident set that this process has had."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    # Less exact: getrusage starts with the peak of the process that this one was forked from.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def machine() -> str:
    """Cores and processor; no host name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        named = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    return f"{os.cpu_count()} cores, {model}"
