"""How work is spread over threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from sklar.errors import SklarError
from sklar.machine import threads
from sklar.machine.threads import ahead, crew, in_order, merged, side_by_side, undivided, using, workers


def test_the_number_of_threads_holds_inside_its_block_alone() -> None:
    before = workers()
    with using(5):
        with using(None):
            assert workers() == 5
        with pytest.raises(ZeroDivisionError), using(2):
            raise ZeroDivisionError
        assert workers() == 5
    assert workers() == before


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_is_a_positive_integer(wrong: object) -> None:
    with pytest.raises(SklarError, match="threads must be a whole number"), using(wrong):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("run", [side_by_side, in_order])
def test_as_many_work_at_once_as_were_asked_for_and_results_keep_their_order(run: object) -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE)

    def work(item: int) -> int:
        # Passes only when three are here at once.
        meeting.wait()
        time.sleep(0.01 * (item % 3))
        return item

    with using(3):
        assert list(run(work, range(9))) == list(range(9))  # type: ignore[operator]


# A busy host may hold a thread back for half a minute while others run on.
PATIENCE = 300
# Listed once: listing takes the loader's lock, for which a thread that works would wait while another polls.
BLAS = ThreadpoolController().select(user_api="blas")


def limits() -> set[int]:
    return {library["num_threads"] for library in BLAS.info()}


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_matrix_products_stay_until_the_last_block_ends(order: tuple[int, ...]) -> None:
    with threadpool_limits(2, user_api="blas"):
        blocks = [undivided() for _ in order]
        for block in blocks:
            block.__enter__()
        for index in order:
            assert limits() == {1}
            assert side_by_side(lambda _item: limits(), [0]) == [{1}]
            assert limits() == {1}
            blocks[index].__exit__(None, None, None)
        assert limits() == {2}


def test_the_last_to_leave_lifts_the_limit_in_whichever_thread_it_is() -> None:
    """threadpoolctl ignores a thread that did not set the limit: then the process would stay at one thread."""
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with undivided():
            entered.set()
            leave.wait(PATIENCE)

    with threadpool_limits(2, user_api="blas"):
        with undivided():
            other = threading.Thread(target=stay)
            other.start()
            assert entered.wait(PATIENCE)
        assert limits() == {1}
        leave.set()
        other.join()
        assert limits() == {2}


def test_what_others_set_between_streams_is_kept() -> None:
    for count in (2, 1, 2):
        with threadpool_limits(count, user_api="blas"):
            assert list(in_order(lambda _item: limits(), [0, 1])) == [{1}, {1}]
            assert limits() == {count}


def test_a_stream_that_is_not_read_to_its_end_leaves_matrix_products_their_threads() -> None:
    """Whoever keeps one (a notebook, a traceback) would else keep the process at one thread."""
    with threadpool_limits(2, user_api="blas"), using(2):
        stream = in_order(lambda _item: limits(), range(100))
        assert next(stream) == {1}
        # What was begun ahead of the reader ends by itself.
        wait_until(lambda: limits() == {2})
        assert next(stream) == {1}


def noted(items: range, taken: list[int]) -> Iterator[int]:
    """The same items, each noted when it is taken."""
    for item in items:
        taken.append(item)
        yield item


def test_a_stream_takes_few_items_ahead_and_stops_with_its_reader() -> None:
    taken: list[int] = []
    with using(2):
        stream = in_order(abs, noted(range(1000), taken))
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
        stream.close()  # type: ignore[attr-defined]
    assert len(taken) <= 6


def test_a_crew_stays_for_all_of_its_work() -> None:
    with using(2), crew() as together:
        names = {together(lambda _item: threading.current_thread().name, range(4))[0] for _ in range(5)}
        assert all("ThreadPool" in name for name in names)
        with pytest.raises(ZeroDivisionError):
            together(lambda item: 1 // item, [1, 0])
        assert together(str, [1, 2]) == ["1", "2"]


def test_the_next_item_is_fetched_while_one_is_in_use_and_no_further() -> None:
    fetched: list[int] = []
    stream = ahead(noted(range(5), fetched))
    assert next(stream) == 0
    wait_until(lambda: len(fetched) > 1)
    assert fetched == [0, 1]
    assert list(stream) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "stream", [lambda work: merged([map(work, range(9))], 1), lambda work: in_order(work, range(9))]
)
def test_a_stream_that_nobody_reads_on_ends_without_waiting(stream: Callable[..., Iterator[int]]) -> None:
    """Garbage may be collected inside of a thread's own start, under a lock that an ending thread needs: this hung."""
    begun, go = threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item:
            begun.set()
            assert go.wait(PATIENCE)
        return item

    with using(1):
        left = stream(work)
        next(left)
        assert begun.wait(PATIENCE)
        ending = threading.Thread(target=left.close)  # type: ignore[attr-defined]
        ending.start()
        ending.join(PATIENCE / 10)
        waits = ending.is_alive()
        go.set()
        ending.join()
    assert not waits


def broken() -> Iterator[int]:
    yield 1
    raise ZeroDivisionError


def test_a_failure_reaches_the_reader() -> None:
    """Of a source, after what it gave; of a piece of work; of one stream of several."""
    stream = ahead(broken())
    assert next(stream) == 1
    for failing in (stream, in_order(lambda item: 1 // item, [2, 1, 0, 1, 1]), merged([range(1000), broken()], 2)):
        with pytest.raises(ZeroDivisionError):
            list(failing)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_merged_streams_give_every_item_once_and_few_ahead(threads: int) -> None:
    streams = [range(10 * number, 11 * number) for number in range(9)]
    taken: list[int] = []
    found = []
    for item in merged((noted(items, taken) for items in streams), threads):
        found.append(item)
        # One that is in use, and one ahead of every stream that is open.
        assert len(taken) <= len(found) + threads + 1
    assert sorted(found) == [item for items in streams for item in items]


def test_who_is_interrupted_while_coming_in_leaves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else matrix products of the process would stay in one thread from then on."""
    before = threads._inside

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threads, "_libraries", None)
        patched.setattr(threads, "ThreadpoolController", interrupt)
        with pytest.raises(KeyboardInterrupt), threads.undivided():
            pass
    assert threads._inside == before
