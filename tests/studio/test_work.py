"""Work in a process of its own: found again, cancelled cleanly, and never wrong about what was charged."""

from __future__ import annotations

import json
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sklar.budget.ledger import Ledger
from sklar.errors import OutputError, SklarError
from sklar.files.archive import load
from sklar.kernel.theorems import Budget, Spend
from sklar.studio import work
from sklar.studio.folder import Folder
from sklar.studio.guard import REPORT_POLICY
from tests.studio.conftest import PEOPLE, SCHEMA, Browser, await_, running

ORDER = {"epsilon": 1.0, "delta": 2.0**-30, "dataset": "people"}


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Whoever runs the tests in the background ignores this signal, which the worker's process does not (`main`)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a table that is ready to be released."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.toml").write_text(SCHEMA)
    Ledger(tmp_path / "ledger.db").open_account("people", epsilon=2.0, delta=2.0**-30)
    made = Folder(tmp_path)
    made.open("people.csv", None)
    return made


def ordered(folder: Folder, **more: Any) -> work.Job:
    """A piece of work that has not begun."""
    kind = more.pop("kind", "release")
    job = work.Job(folder, work.State(number=1, kind=kind, desk="people", release=1, order=ORDER | more))
    job.write()
    return job


def do(folder: Folder, **more: Any) -> dict[str, Any]:
    """Do a piece of work in this process; its state in the end."""
    ordered(folder, **more)
    work.do(str(folder.root), 1)
    state: dict[str, Any] = json.loads((folder.notes() / "0001.work.json").read_text())
    return state


def begun(folder: Folder, stage: str) -> None:
    """A piece of work that has come to a stage."""
    ordered(folder).stage(stage)


def charges(folder: Folder) -> int:
    return len(Ledger(folder.root / "ledger.db").account("people").charges)


def left_behind(folder: Folder) -> set[str]:
    known = {"people.csv", "people.toml", "ledger.db", ".sklar-studio"}
    return {path.name for path in folder.root.iterdir()} - known


def planned(studio: Browser) -> str:
    """The plan that the page of a release shows, as its form says it."""
    found = re.search(r'name="plan" value="([^"]*)"', studio.get("/t/people/release").text)
    assert found
    return found[1]


def test_a_form_about_another_plan_spends_nothing(folder: Folder) -> None:
    """Two tabs: one shows a release for epsilon 1, the other one changes the plan, the schema, or makes a release."""
    with running(folder.root) as studio:
        studio.get("/t/people/describe")
        for change in ("epsilon", "schema"):
            shown = planned(studio)
            if change == "epsilon":
                studio.post("/t/people/plan", epsilon="1.5")
            else:
                (folder.root / "people.toml").write_text(SCHEMA.replace("30, 50", "40, 50"))
            said = studio.post("/t/people/release", plan=shown).said
            assert "nothing was spent. The plan is epsilon 1.5 now: look at it again." in said
        assert charges(folder) == 0
        assert not list(folder.notes().glob("*.work.json"))
    assert left_behind(folder) == set()


def test_a_release_survives_the_studio_and_is_found_by_the_next_one(folder: Folder) -> None:
    with running(folder.root) as first:
        first.get("/t/people/describe")
        plan = planned(first)
        assert "is being made" in first.post("/t/people/release", compare="yes", plan=plan).said
        assert "other work is under way" in first.post("/t/people/release", plan=plan).said
    # The first studio is gone. A second one finds the work, and what came of it.
    with running(folder.root) as second:
        await_(lambda: 'data-state="running"' not in second.get("/t/people/release/state").text)
        page = second.get("/t/people/release")
        assert "Release 1 is made" in page.said
        # A second release is asked about, and the form of the first one makes none.
        assert "changed since that page was shown" in second.post("/t/people/release", plan=plan, again="yes").said
        assert "say that you want another release" in second.post("/t/people/release", plan=planned(second)).said
        assert "The ledger was charged for this release" in page.said
        assert charges(folder) == 1
        assert load(folder.root / "people-1.sklar").certificate.receipt is not None
        for name in ("people-1.PRIVATE.html", ".sklar-studio/0001.work.json"):
            assert stat.S_IMODE((folder.root / name).stat().st_mode) == 0o600
        # The private comparison and the public report never meet.
        private, public = second.get("/t/people/look"), second.get("/t/people/report")
        for text in ("look/comparison", "PRIVATE: this page shows exact facts"):
            assert (text in private.text, text in public.text) == (True, False)
        assert ("report/page" in private.text, "report/page" in public.text) == (False, True)
        for path in ("look/comparison", "report/page"):
            answer = second.get(f"/t/people/{path}")
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Content-Security-Policy"] == REPORT_POLICY
        assert "script" not in REPORT_POLICY
        page = second.get("/t/people/publish")
        for name in ("people-1.csv", "people-1.sklar", "people-1.report.html", "people.toml"):
            assert name in page.said
            given = second.get(f"/t/people/files/{name}")
            assert given.status == 200
            assert given.headers["Content-Disposition"].startswith("attachment")
            assert given.body == (folder.root / name).read_bytes()
        assert "verified." in second.get("/t/people/publish/verdict").said
        for name in ("people.csv", "people-1.PRIVATE.html", "ledger.db"):
            assert second.get(f"/t/people/files/{name}").status == 400
        assert "charged in full" in second.get("/books/paid").said
        # Synthetic rows are no table to release.
        assert "people-1.csv" not in second.get("/").said


def test_cancelling_before_the_charge_costs_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.notes() / "0001.cancel.json").touch()
    monkeypatch.setattr("sklar.custodian.check.check_values", lambda *_, **__: time.sleep(300))
    state = do(folder)
    assert (state["state"], state["message"]) == ("cancelled", "Interrupted. No file was left half-written.")
    assert charges(folder) == 0
    assert left_behind(folder) == set()


def test_cancelling_after_the_charge_says_that_it_stays(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object, **__: object) -> None:
        (folder.notes() / "0001.cancel.json").touch()
        time.sleep(300)

    monkeypatch.setattr("sklar.fitting.choose.fit_auto", wait)
    state = do(folder)
    charged = "The ledger was charged for this release of epsilon=1 before (entry 3), and that stays spent."
    assert state["state"] == "cancelled"
    assert charged in state["message"]
    assert "To go on at no cost: sklar fit --resume" in state["message"]
    assert charges(folder) == 1
    assert left_behind(folder) == {"people-1.measured.sklar"}
    # A studio that comes later tells the same, from the books.
    with running(folder.root) as studio:
        studio.get("/t/people/describe")
        said = studio.get("/t/people/release").said
        assert "The release was cancelled" in said
        assert "The books show a charge for it, which stays." in said


def test_cancelling_a_charged_release_is_asked_about_first(folder: Folder) -> None:
    begun(folder, "fit")
    Ledger(folder.root / "ledger.db").charge("people", Budget(epsilon=1.0), Spend.of([200.0], [3]))
    cancel = folder.notes() / "0001.cancel.json"
    with running(folder.root) as studio, work._lock(folder, wait_s=1.0):
        studio.get("/t/people/describe")
        said = studio.post("/t/people/release/cancel").said
        assert "charged for this release already. If you stop it now, epsilon stays spent" in said
        assert not cancel.exists()
        studio.post("/t/people/release/cancel", sure="yes")
        assert cancel.exists()


def test_a_schema_that_loses_most_values_stops_before_the_charge(folder: Folder) -> None:
    (folder.root / "people.toml").write_text(SCHEMA.replace("[0, 30, 50, 100]", "[1000, 2000, 3000]"))
    state = do(folder)
    assert state["state"] == "failed"
    assert "nothing was released and no privacy was spent. age: 100% of its values" in state["message"]
    assert "PRIVATE" in state["message"]
    assert charges(folder) == 0


def test_failures_are_told_without_quoting_anything(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklar.custodian.check.check_values", Mock(side_effect=RuntimeError("Jane Doe")))
    assert do(folder)["message"].startswith("Unexpected RuntimeError. To see where, run the same command")
    assert "Jane" not in (folder.notes() / "0001.work.json").read_text()


def test_a_refused_charge_measures_nothing(folder: Folder) -> None:
    assert "would overspend it. Nothing was measured." in do(folder, epsilon=5.0)["message"]
    assert charges(folder) == 0
    assert left_behind(folder) == set()


def test_a_comparison_that_fails_does_not_take_the_release_with_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sklar.custodian.evaluate.evaluate", Mock(side_effect=SklarError("no room")))
    state = do(folder, compare=True)
    assert state["state"] == "done"
    assert state["remark"] == "The release is done, and was charged. Its comparison with the real rows is not: no room"
    assert left_behind(folder) == {"people-1.csv", "people-1.sklar"}


@pytest.mark.parametrize("compare", [True, False])
def test_cancelling_a_comparison_says_that_the_release_exists(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, compare: bool
) -> None:
    """While it compares, or at the moment before: when the rows are drawn, and nothing else has begun."""
    where = "sklar.custodian.evaluate.evaluate" if compare else "sklar.studio.work.Job.compare"
    monkeypatch.setattr(where, Mock(side_effect=KeyboardInterrupt))
    state = do(folder, compare=True)
    assert state["remark"].startswith("The release is done, and was charged. Its comparison with the real rows is not:")
    assert left_behind(folder) == {"people-1.csv", "people-1.sklar"}


def test_rows_that_cannot_be_written_are_drawn_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the model was small enough, and is what the charge has bought."""
    with monkeypatch.context() as full:
        full.setattr("sklar.files.model.Model.write", Mock(side_effect=OutputError("'x' could not be written.")))
        assert "and that stays spent" in do(folder)["message"]
    assert left_behind(folder) == {"people-1.sklar"}
    with running(folder.root) as studio:
        studio.get("/t/people/describe")
        said = studio.get("/t/people/release").said
        for text in ("could not be written", "The books show a charge", "Its model was saved before that"):
            assert text in said
        studio.post("/t/people/release/draw", release="1")
        await_(lambda: (folder.root / "people-1.csv").is_file())


def test_work_whose_process_ended_unheard_is_told(folder: Folder) -> None:
    begun(folder, "count")
    works = work.Works(folder)
    assert works.state(1).state == "lost"
    assert "ended without a word" in works.state(1).message
    assert works.running() is None
    with work._lock(folder, wait_s=0.1):
        assert works.state(1).state == "running"
        assert works.running() is not None
        with pytest.raises(SklarError, match="other work is under way"):
            works.begin("release", "people", 1)
    with pytest.raises(SklarError, match="no such work"):
        works.state(9)


def test_progress_keeps_steps_and_does_not_end_the_work_where_it_cannot_be_written(tmp_path: Path) -> None:
    state = work.State(number=1, kind="release", desk="x", release=1)
    told = work.Job(Mock(notes=lambda: tmp_path / "gone"), state)
    told.stage("count", total=10, unit="rows")
    told.advance(4)
    told.advance(3)
    told.stage("measure")
    assert [(each.name, each.done, each.total) for each in state.stages] == [("count", 7, 10), ("measure", 0, None)]
