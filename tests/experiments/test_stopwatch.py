import pytest

from experiments import stopwatch
from sklar.machine.progress import Progress, watch


class Clock:
    """Stands in for `time`: each reading is told beforehand."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def perf_counter(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.cpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stopwatch, "time", found)
    return found


class Batch:
    def __len__(self) -> int:
        return 7


def test_stages_are_timed_from_one_to_the_next_and_repeated_ones_add_up(clock: Clock) -> None:
    timed = stopwatch.Stopwatch()
    progress: Progress = timed
    clock.wall = 100.0  # before the first stage: nobody's
    progress.stage("count", unit="rows")
    clock.wall, clock.cpu = 103.0, 5.0
    assert [len(batch) for batch in watch([Batch(), Batch()], progress)] == [7, 7]
    progress.stage("fit", total=3)
    clock.wall, clock.cpu = 104.0, 6.0
    progress.stage("count")
    clock.wall, clock.cpu = 104.5, 6.25
    progress.advance(1)
    timed.stop()
    clock.wall = 200.0
    timed.stop()
    assert list(timed.laps) == ["count", "fit"]
    count, fit = timed.laps.values()
    assert (count.seconds, count.cpu_seconds, count.steps) == (3.5, 5.25, 15)
    assert (fit.seconds, fit.cpu_seconds, fit.steps) == (1.0, 1.0, 0)
    assert count.peak_bytes >= fit.peak_bytes > 0


def test_the_peak_of_memory_stays_when_memory_is_given_back() -> None:
    before = stopwatch.peak_bytes()
    held = b"x" * (before + (64 << 20))
    del held
    # Linux adds up pages of each processor now and then: its figures are right within a few hundred kilobytes.
    assert stopwatch.peak_bytes() > before + (60 << 20)
