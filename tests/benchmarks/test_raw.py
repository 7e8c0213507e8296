"""The benchmark of raw tables: its oracle calls known losses bad and chance not, and its goals say what they found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import raw

pd = pytest.importorskip("pandas")
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
