"""Work that takes long, in a process of its own: closing the browser, or the end of the server, does not stop it.

A piece of work is a file in the folder's notes, its owner's alone: `N.work.json` says what is to be done and how far
it is, and its process keeps writing it. While a process works it holds the lock of `working.db`: an exclusive
transaction, which the operating system ends with the process, however that ends. `N.cancel` asks it to stop; it then
stops as at Ctrl-C, so that no file is left half-written. What a ledger was charged before stays charged.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sklar.budget.ledger import Ledger
from sklar.budget.receipt import charge_notes, telling
from sklar.errors import OutputError, SklarError
from sklar.files.archive import load
from sklar.files.model import Model
from sklar.kernel.theorems import Budget
from sklar.machine.notebook import sentence
from sklar.machine.stores import fresh_file
from sklar.machine.wording import explained, failing, said
from sklar.public.schema import Schema
from sklar.studio.folder import Folder

_WAIT_S = 20.0
# What a stage is called on the screen, in the order in which a release meets them.
STAGES = {
    "check": "Look whether the schema fits the rows",
    "find": "Look for domains, with noise",
    "count": "Count the rows",
    "measure": "Add noise",
    "choose": "Choose the model's size",
    "fit": "Fit the model",
    "sample": "Draw synthetic rows",
}


@dataclass(slots=True, kw_only=True)
class Stage:
    """One stage of work, as far as it has come."""

    name: str
    unit: str
    total: int | None
    done: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class State:
    """What a piece of work is to do (`order`), and how far it is.

    It ends as `done`, `failed` or `cancelled`; `lost` if its process ended unheard.
    """

    number: int
    kind: str
    desk: str
    release: int
    order: Mapping[str, Any] = field(default_factory=dict)
    state: str = "running"
    message: str = ""
    remark: str = ""
    stages: list[Stage] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state != "running"


class Works:
    """All pieces of work of a folder: begin one, cancel it, see how far it is."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._starting, self._probing = folder, threading.Lock(), threading.Lock()

    def begin(self, kind: str, desk: str, release: int, **order: Any) -> State:
        """Begin a piece of work on a release; an error when another is under way."""
        with self._starting:
            if self.running() is not None:
                raise SklarError("other work is under way in this folder. Wait until it has ended, or cancel it.")
            number = max((each.number for each in self.all()), default=0) + 1
            state = State(number=number, kind=kind, desk=desk, release=release, order=order)
            with failing(OutputError, "work cannot begin: notes cannot be written ({why}).", OSError):
                _put(_path(self._folder, number, "work"), asdict(state))
                # Of work by an earlier version.
                _path(self._folder, number, "cancel").unlink(missing_ok=True)
            # -P: a file of the folder must not be taken for a module.
            command = [sys.executable, "-P", "-m", "sklar.studio.work", str(self._folder.root), str(number)]
            none = subprocess.DEVNULL
            # A session of its own: Ctrl-C in the server's terminal is not meant for it.
            process = subprocess.Popen(  # noqa: S603 - our own program and arguments
                command, stdin=none, stdout=none, stderr=none, cwd=self._folder.root, start_new_session=True
            )
            # Until the process has the lock: from then on anybody can see that it works.
            end = time.monotonic() + _WAIT_S
            while time.monotonic() < end and not self._is_locked() and process.poll() is None:
                if _read(self._folder, number).over:
                    break
                time.sleep(0.02)
            # So that no dead child stays behind while the server lives.
            threading.Thread(target=process.wait, daemon=True).start()
            return self.state(number)

    def all(self, desk: str | None = None) -> list[State]:
        """All pieces of work, or those of one table, oldest first."""
        names = (path.name.split(".")[0] for path in self._folder.notes().glob("*.work.json"))
        states = [self.state(number) for number in sorted(int(name) for name in names if name.isdigit())]
        return [each for each in states if desk is None or each.desk == desk]

    def running(self) -> State | None:
        """The work that is under way."""
        states = reversed(self.all()) if self._is_locked() else ()
        return next((each for each in states if not each.over), None)

    def state(self, number: int) -> State:
        """How far a piece of work is; `lost` where its process ended without a word."""
        state = _read(self._folder, number)
        if not state.over and not self._is_locked():
            # It may have ended between the two looks, or be about to begin.
            state = _read(self._folder, number)
            age = time.time() - _path(self._folder, number, "work").stat().st_mtime
            if not state.over and (state.stages or age > _WAIT_S):
                state.state = "lost"
                state.message = "The process ended without a word: it was killed, or the machine or its disk failed."
        return state

    def cancel(self, number: int) -> None:
        """Ask a piece of work to stop."""
        if not self.state(number).over:
            _put(_path(self._folder, number, "cancel"), {})

    def _is_locked(self) -> bool:
        # One at a time: two probes would take each other for the work.
        try:
            with self._probing, _lock(self._folder, wait_s=0.0):
                return False
        except sqlite3.OperationalError:
            return True


def _path(folder: Folder, number: int, what: str) -> Path:
    return folder.notes() / f"{number:04d}.{what}.json"


def _read(folder: Folder, number: int) -> State:
    with failing(SklarError, "there is no such work in this folder.", (OSError, ValueError, TypeError, KeyError)):
        document = json.loads(_path(folder, number, "work").read_text(encoding="utf-8"))
        return State(**document | {"stages": [Stage(**each) for each in document["stages"]]})


@contextmanager
def _lock(folder: Folder, *, wait_s: float) -> Iterator[None]:
    path = folder.notes() / "working.db"
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        with suppress(OSError):
            path.chmod(0o600)
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def _put(path: Path, document: Mapping[str, Any]) -> None:
    """Write a small private file whole. Not flushed: what it says is worth nothing after a crash of the machine."""
    temporary = fresh_file(path, private=True)
    try:
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def do(root: str, number: int) -> None:
    """Do one piece of work, in this process, and say in its state how it ended."""
    folder = Folder(root)
    job = Job(folder, _read(folder, number))
    try:
        with _lock(folder, wait_s=5.0):
            job.run()
            # While the lock is held: whoever finds it free finds the end of the work, too.
            job.write()
    except sqlite3.OperationalError:
        job.state.state, job.state.message = "failed", "Other work is under way in this folder."
        job.write()


class Job:
    """One piece of work: each kind is a method, which does what a command does.

    It is its own progress, which is kept in the state file: written when a stage begins, and by the thread that watches
    the work.
    """

    def __init__(self, folder: Folder, state: State) -> None:
        self.folder, self.state = folder, state
        self._lock, self._began = threading.RLock(), time.monotonic()

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """A stage begins."""
        with self._lock:
            self._clock()
            self.state.stages.append(Stage(name=name, unit=unit, total=total))
            self._began = time.monotonic()
            self.write()

    def advance(self, steps: int) -> None:
        """Count steps."""
        with self._lock:
            for stage in self.state.stages[-1:]:
                stage.done += steps

    def _clock(self) -> None:
        if self.state.stages and not self.state.over:
            self.state.stages[-1].seconds = time.monotonic() - self._began

    def write(self) -> None:
        """Write the file. A disk that is full must not end the work itself."""
        with self._lock, suppress(OSError):
            self._clock()
            _put(_path(self.folder, self.state.number, "work"), asdict(self.state))

    def run(self) -> None:
        """Do the work, and say in its state how it ended."""
        kinds = {"release": self.release, "compare": self.compare, "sample": self.sample, "publish": self.publish}
        over = threading.Event()
        try:
            try:
                threading.Thread(target=self._watch, args=(over,), daemon=True).start()
                kinds[self.state.kind]()
            finally:
                # From here on nothing interrupts: what has ended is over, and its state is to be written.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                over.set()
            self.state.state = "done"
        except (Exception, KeyboardInterrupt) as error:
            self.state.state = "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
            self.state.message = " ".join(
                filter(None, [sentence(explained(error)), self.state.remark, *charge_notes(error)])
            )

    def _watch(self, over: threading.Event) -> None:
        """Keep the clock of the present stage, and interrupt the work when it is to be cancelled."""
        cancel, interrupted = _path(self.folder, self.state.number, "cancel"), False
        while not over.wait(0.2):
            self.write()
            if cancel.exists() and not interrupted:
                interrupted = True
                main = threading.main_thread().ident
                # As Ctrl-C does, in the middle of a system call too where that is possible.
                if hasattr(signal, "pthread_kill") and main is not None:
                    signal.pthread_kill(main, signal.SIGINT)
                else:
                    _thread.interrupt_main()

    def file(self, suffix: str) -> Path:
        """A file of the release that the order is about."""
        return self.folder.inside(f"{self.state.desk}-{self.state.release}{suffix}")

    def release(self) -> None:
        """As `sklar release --check`; then the private comparison of `sklar evaluate`, which may fail by itself."""
        from sklar.custodian.check import check_values
        from sklar.errors import DataError
        from sklar.files.write import check_target
        from sklar.release import fit

        desk, order = self.folder.desk(self.state.desk), self.state.order
        schema = Schema.load(self.folder.inside(desk.schema))
        schema.require_reviewed()
        check_target(self.file(".sklar"), (".sklar",))
        check_target(self.file(".csv"), (".csv",))
        unfit = [fate for fate in check_values(self.folder.table(desk), schema, progress=self) if fate.cause]
        if unfit:
            raise DataError(said("studio.lost", fates=" ".join(fate.warning for fate in unfit)))
        budget = Budget(epsilon=order["epsilon"], delta=order["delta"])
        charge = {"ledger": Ledger(self.folder.ledger), "dataset": order["dataset"]}
        kept = self.file(".measured.sklar")
        model = fit(self.folder.table(desk), schema, budget, keep=kept, progress=self, **charge)
        with telling([model.certificate.receipt], model.certificate.epsilon, kept):
            # The model first: once privacy is spent, a failure to write rows must not lose what it bought.
            model.save(self.file(".sklar"))
            kept.unlink(missing_ok=True)
            self._draw(model)
            # From here on whatever interrupts says so.
            self.state.remark = "The release is done, and was charged."
        if order.get("compare"):
            try:
                self.compare()
            except (SklarError, KeyboardInterrupt) as error:
                why = "it was cancelled." if isinstance(error, KeyboardInterrupt) else error
                self.state.remark += f" Its comparison with the real rows is not: {why}"
                return
        self.state.remark = ""

    def sample(self) -> None:
        """As `sklar sample`: rows of a model whose own rows could not be written."""
        self._draw(load(self.file(".sklar")))

    def _draw(self, model: Model) -> None:
        from sklar.draw.sample import check_draw

        _, seed = check_draw(None, None)
        model.write(str(self.file(".csv")), seed=seed, progress=self)

    def compare(self) -> None:
        """As `sklar evaluate --report`."""
        from sklar.custodian.evaluate import evaluate

        real, schema = self.folder.table(self.folder.desk(self.state.desk)), load(self.file(".sklar")).schema
        evaluate(real, self.file(".csv"), schema, report=self.file(".PRIVATE.html"), progress=self)

    def publish(self) -> None:
        """As `sklar publish --replace`."""
        from sklar.trust.passport import Publication, publish

        about = Publication(**self.state.order["said"])
        publish(self.file(".sklar"), self.file("-published"), publication=about, replace=True, progress=self)


if __name__ == "__main__":
    # Whoever started the studio in the background ignores this signal, and so would we.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A low priority keeps the browser quick.
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(5)
    do(sys.argv[1], int(sys.argv[2]))
