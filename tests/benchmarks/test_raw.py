"""Raw tables: the oracle calls known losses bad and chance not, goals say what they found, judges get their bins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import raw

pd = pytest.importorskip("pandas")
from benchmarks.judges import __main__ as judges  # noqa: E402
from benchmarks.judges import judging  # noqa: E402

from benchmarks import oracle  # noqa: E402


def table(seed: int, rows: int = 2_000) -> pd.DataFrame:  # type: ignore[name-defined]
    generator = np.random.default_rng(seed)
    city = generator.choice(list("ABCDEF"), rows)
    pay = generator.lognormal(10 + 0.4 * np.array([ord(each) - 65 for each in city]), 0.3).round(2)
    at = pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 360, rows) * 24 + 8, unit="h")
    return pd.DataFrame(
        {
            "city": city,
            "pay": pay,
            "at": at.strftime("%Y-%m-%d %H:%M:%S"),
            "clock": at.strftime("%H:") + np.char.zfill(generator.integers(0, 60, rows).astype(str), 2),
            "code": generator.integers(0, 5, rows),
        }
    ).astype(str)


def bad(real: object, synthetic: object) -> dict[str, tuple[str, ...]]:
    columns, pairs = oracle.judge(real, synthetic)
    return {" x ".join(each.names): each.bad for each in (*columns, *pairs) if each.bad}


def test_the_oracle_calls_chance_good_and_losses_bad() -> None:
    real = table(0)
    assert bad(real, real) == bad(real, table(1)) == {}
    kinds = {each.names[0]: each.kind for each in oracle.judge(real, real)[0]}
    assert kinds == {"city": "category", "pay": "number", "at": "time", "clock": "time", "code": "category"}
    assert bad(real, real.assign(city="other"))["city"] == ("0% of the values survive, 98% by chance",)
    assert bad(real, real.assign(code=real["code"] + ".0", at=real["at"].str.replace("-", "/"))) == {}
    hours = pd.to_datetime(real["at"]) + pd.to_timedelta(np.arange(len(real)) % 15, unit="h")
    assert bad(real, real.assign(at=hours.astype(str)))["at"][0].startswith("hour of the day off by 0.9")
    cut = bad(real, real.assign(pay=np.minimum(oracle.numbers(real["pay"]), 30_000).astype(str)))
    assert any(why.startswith("mean ") for why in cut["pay"])
    assert any(why.startswith("95% quantile") for why in cut["pay"])
    real = table(0, 9_000)
    flat = bad(real, real.assign(pay=real["pay"].sample(frac=1, random_state=1).to_numpy()))
    assert [why.split()[0] for why in flat["city x pay"]] == ["association", "medians"]
    assert bad(real, real.assign(pay=""))["pay"] == ("missing 100% for 0%", "no numbers")


def test_contradictions_and_goals() -> None:
    columns, pairs = oracle.judge(table(0), table(0).assign(city="other"))
    document = {
        "columns": [{"name": name, "verdict": "use"} for name in ("city", "pay", "at", "clock", "code")],
        "pairs": [{"columns": ["pay", "city"], "verdict": "with care"}],
        "score": {"overall": 40.0},
    }
    found = raw.summarize(columns, pairs, document)
    assert found["contradictions"] == ["city: 0% of the values survive, 98% by chance"]
    assert (found["columns"], found["pairs"], found["score"]) == ({"use": 5}, {"with care": 1}, 40)
    assert found["survive"] == 0.5
    run = found | {"table": "storms", "rows": 2_000, "draw": 1, "quality": 0.97, "intervals": 10, "covered": 9}
    run |= {"release_s": 1.0, "evaluate_s": 1.0, "quality_of_real": 0.98}
    goals = {words.split(",")[0]: met for words, _, _, met in raw.goals([run])}
    assert goals == {
        "values that survive": False,
        "KS": True,
        "relative error of means": True,
        "association of columns called use": False,
        "sdmetrics quality (0.980 of real rows beside others)": True,
        "coverage of 10 intervals": False,
        "contradictions of the oracle": False,
    }
    assert "score 40  survive 0.500" in raw.line(run)
    page = raw.page_of([run])
    assert "| storms | 2,000 | 40 | 0.500 |" in page
    assert "- storms, draw 1: city: 0% of the values survive" in page


def test_nists_bins_are_percentiles_of_the_released_rows() -> None:
    train = pd.DataFrame({"n": np.random.default_rng(0).permutation(2_000).astype(float), "c": "x"})
    judged = pd.DataFrame({"n": [-5.0, 50.0, 99.0, 100.0, 1_999.0, 9_999.0, np.nan], "c": "y"})
    binned, other = judging.nist_bins(train, judged, {"n": "number", "c": "category"})
    # Twenty bins hold a twentieth each, but for where a rank stands on an edge.
    assert binned["n"].value_counts().between(99, 101).sum() == 20
    assert other["n"].tolist() == [0, 0, 1, 1, 19, 19, -1]
    assert other["c"].tolist() == ["y"] * 7


def test_a_judges_goals_are_met_within_their_limit_and_silence_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "ROOT", tmp_path)
    silence = judges.said("sdnist", tmp_path, tmp_path, tmp_path, ["a"])
    runs = [
        {"table": name, "draw": 1, "said": {"sdmetrics.test": {"score": 0.99}, "sdmetrics.draft": said}}
        for name, said in (("near", {"score": 0.985}), ("far", {"score": 0.97}), ("silent", silence))
    ]
    assert judges.passes(runs) == [
        "PASS  sdmetrics on near: 0.985, +0.0050 behind real rows (at most 0.01)",
        "FAIL  sdmetrics on far: 0.970, +0.0200 behind real rows (at most 0.01)",
        "NONE  sdmetrics.draft of silent, draw 1: needs .venv-sdnist. Run make judges.",
    ]
