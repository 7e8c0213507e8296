"""docs/results/README.md, written from the JSON files of the experiments: no figure in it is typed by hand."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from experiments import errors, paper, record
from sklar.custodian.evaluate.conjunctions import PERCENTS
from sklar.files.write import write_text

PARTS = (
    "errors", "scatter", "cdfs", "correlation_split", "epsilon_sweep", "runtimes", "illustrations", "learning"
)  # fmt: skip
SEEN = "three-way, count > 0"
HIGH, LOW = "two-way, |r| >= 0.5", "two-way, |r| < 0.5"


def page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    results = {name: document["results"] for name, document in documents.items()}
    sections = [
        _opening(documents),
        _table_of_errors(documents),
        _against_us(results),
        _curves(results),
        _split(results),
        _sweep(results),
        _learning(results),
        _times(documents["runtimes"]),
        _illustrations(results["illustrations"]),
        _data(),
    ]
    return "\n".join(_filled(section.strip()) + "\n" for section in sections)


def _filled(text: str) -> str:
    """Paragraphs and list items filled to the width of the house; tables, code and pictures as they are."""
    out = []
    for part in re.split(r"(\n\n|\n(?=- )|\n(?=\|))", text):
        if part.strip() and part[0] not in "|#`!<":
            words = " ".join(part.split())
            part = textwrap.fill(
                words, 120, subsequent_indent="  " if words.startswith("- ") else "", break_on_hyphens=False
            )
        out.append(part)
    return "".join(out)


def _mean(found: Mapping[str, Any], output: str, kind: str, percent: int, measure: str = "average") -> float:
    return record.mean(found["outputs"][output]["classes"][kind][str(percent)][measure])


def _opening(documents: Mapping[str, Mapping[str, Any]]) -> str:
    epsilon = documents["errors"]["header"]["epsilon"]
    ratios = documents["errors"]["ours_over_paper_adult"]
    far = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > 0.2}
    rest = ""
    for name, ratio in far.items():
        called, values, figure = _figure(name, documents["scatter"])
        rest += (
            f" The other one, {called}, is {ratio:.2f} times the paper's: of 194 "
            f"one-way errors it is the second largest; in thirty runs it went from {min(values):,.0f} to "
            f"{max(values):,.0f} around {record.mean(values):,.0f}, with the paper's {figure:,} among them."
        )
    inside = documents["scatter"]["within"]
    return f"""
# The paper, run again

![Ours over the paper's](errors.svg)

What Asghar et al. (2020) measured, measured again: every table and figure of theirs from one command each, ours beside
theirs. `dpc` is their mechanism in its [sound reading](illustrations.md), `Lap` is independent Laplace noise on every
query; both at epsilon = {epsilon:g}, delta = 2^-30. Figures are means of three runs, with their range in parentheses.

**It holds up.** {len(ratios) - len(far)} of {len(ratios)} figures for Adult (averages, and maxima of the best 95% and
99%) are within 20% of the paper's, {sum(abs(ratio - 1) <= 0.05 for ratio in ratios.values())} of them within 5%.{rest}
Over [thirty runs](scatter.md), {sum(inside.values())} of the paper's {len(inside)} one- and two-way figures lie between
our smallest and our largest{_outside(documents["scatter"])}. The bins of Adult's numbers are our own, with the paper's
number of levels; the paper does not give its edges.
"""


def facts(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of which trees the pages are that this one sums up: one `src` where it is one."""
    by: dict[str, list[str]] = {}
    for name, document in documents.items():
        by.setdefault(document["header"].get("src", "-"), []).append(name)
    said = {"command": "python -m experiments.page, from the JSON of " + ", ".join(documents)}
    if len(by) == 1:
        header = next(iter(documents.values()))["header"]
        return said | {
            key: header[key] for key in ("python", "sklar", "numpy", "src", "machine", "date") if key in header
        }
    return said | {"trees": "; ".join(f"{tree}: {', '.join(names)}" for tree, names in by.items())}


def _outside(document: Mapping[str, Any]) -> str:
    """The figures of the paper outside the range of the runs, in words."""
    parts = []
    for name in (name for name, holds in document["within"].items() if not holds):
        called, values, figure = _figure(name, document)
        parts.append(f"{called}, {figure:,} against {min(values):,.0f}-{max(values):,.0f}")
    return f" (but not {'; '.join(parts)})" if parts else ""


def _printed(table: str, output: str, kind: str, percent: int) -> str:
    """One of the paper's figures, average / maximum."""
    average, maximum = dict(zip(PERCENTS, paper.ERRORS[table][output][kind], strict=True))[percent]
    return f"{average:,} / {maximum:,}"


def _figure(name: str, document: Mapping[str, Any]) -> tuple[str, list[float], int]:
    """One of the paper's figures for Adult: in words, its value in each of thirty runs, and as printed."""
    output, kind, last = name.split(", ")
    percent, measure = last.split("% ")
    values = document["results"][output]["classes"][kind][percent][measure]
    printed = dict(zip(PERCENTS, paper.ERRORS["adult"][output][kind], strict=True))[int(percent)]
    return f"{output}'s {kind} {percent}% {measure}", values, printed[("average", "maximum").index(measure)]


def _table_of_errors(documents: Mapping[str, Mapping[str, Any]]) -> str:
    results = documents["errors"]["results"]
    found = results["adult"]
    rows: list[list[object]] = []
    for output, kinds in paper.ERRORS["adult"].items():
        for kind, printed in kinds.items():
            ours = found["outputs"][output]["classes"][kind]
            rows.append([f"{output}, {kind}", *record.cells(ours)])
            rows.append(["*the paper*", *(f"*{average:,} / {maximum:,}*" for average, maximum in printed)])
    zero = found["outputs"]["dpc"]["classes"]["three-way"]
    dss, hospital = results["dss"], results["hospital"]
    printed, own = paper.ERRORS["dss"]["Lap"], paper.ERRORS["adult"]["dpc"]["one-way"]
    _, best, all_ = printed[SEEN]
    lap = paper.ERRORS["adult"]["Lap"]["two-way"][2][0]
    return f"""
## Errors

Adult: average / maximum absolute error, in rows, of the best 95%, 99% and 100% of the queries. The other tables, and
three more methods, are in [errors.md](errors.md).

{record.table(["", "95%", "99%", "100%"], rows)}
- **Three-way queries must have a true count.** The paper's three-way figures, of dpc and of Lap, come out only on
  triples that occur in the data. On all {zero["queries"]:,} triples dpc's 95% / 99% / 100% averages are
  {", ".join(record.spread(zero[str(p)]["average"]) for p in PERCENTS)}: most triples are empty in both tables.
- **Lap was cut at zero.** The paper does not say so, but its scale is 2/e' = {2 / found["epsilon_each"]:.0f} and its
  two-way average {lap}. With answers below zero set to zero we get {_mean(found, "Lap", "two-way", 100):.0f}: most
  counts
  are zero, and half of their noise is cut off. Uncut, the average would be {2 / found["epsilon_each"]:.0f}.
- **Hospital agrees too**, though our copy has {hospital["dummies"]:,} dummies and theirs {paper.HOSPITAL_DUMMIES:,}:
  dpc
  one-way 99%
  {record.cells(hospital["outputs"]["dpc"]["classes"]["one-way"])[1]} (the paper
  {_printed("hospital", "dpc", "one-way", 99)}), three-way
  {record.cells(hospital["outputs"]["dpc"]["classes"][SEEN])[1]} ({_printed("hospital", "dpc", SEEN, 99)}).
- **DSS is not public**, and a generated table of its shape is not DSS. Lap's three-way 99% depends on little but the
  shape and agrees ({record.cells(dss["outputs"]["Lap"]["classes"][SEEN])[1]}, the paper
  {_printed("dss", "Lap", SEEN, 99)}). What depends on the values does not: Lap's one-way 99% average is
  {_mean(dss, "Lap", "one-way", 99):.0f} against
  {printed["one-way"][1][0]}, as if fewer of our levels were empty, and dpc's two-way 95% average
  {_mean(dss, "dpc", "two-way", 95):.0f} against {paper.ERRORS["dss"]["dpc"]["two-way"][0][0]}. We ran {dss["rows"]:,}
  rows, not {paper.TIMES["dss"][0]:,} (`--full` runs them all).
- **Two printed figures contradict their neighbors.** dpc on Adult, one-way: an average of {own[1][0]} over the best
  99% cannot fall to {own[2][0]} over all. Lap on DSS, three-way: from {best[0]} over the best 99% to {all_[0]} over
  all,
  the last 1% would have to average {100 * all_[0] - 99 * best[0]:,} with a maximum of {all_[1]:,}.
"""


def _against_us(results: Mapping[str, Any]) -> str:
    adult, hospital = results["errors"]["adult"], results["errors"]["hospital"]

    def average(output: str, kind: str = "two-way", percent: int = 100) -> str:
        return record.spread(adult["outputs"][output]["classes"][kind][str(percent)]["average"])

    def tv(output: str) -> str:
        classes = adult["outputs"][output]["classes"]
        return " / ".join(f"{record.mean(classes[kind]['mean_total_variation']):.3f}" for kind in record.CLASSES[:3])

    valid = 100 * record.mean(adult["outputs"]["dpc"]["valid_share"])
    rows = [
        [
            output,
            average(output, percent=99),
            average(output),
            average(output, HIGH),
            average(output, SEEN),
            tv(output),
            "no rows" if output == "Lap" else f"{100 * record.mean(adult['outputs'][output]['valid_share']):.2f}%",
        ]
        for output in errors.OUTPUTS
        if output != "Lap"
    ]
    quarter = record.spread(results["epsilon_sweep"]["0.25"]["DP independence"]["classes"]["two-way"]["100"]["average"])
    high = {output: _mean(hospital, output, HIGH, 100) for output in ("dpc", "DP independence")}
    return f"""
## Known weaknesses of dpc

*DP independence* spends the whole budget on one-way tables and draws every attribute on its own; *DPCopula-Kendall*
(Li, Xiong and Jiang 2014) is the closest earlier method, given the same e' for each histogram and each tau; *sklar
default* is what this version does when nobody asks for the paper. Average errors on Adult:

{record.table(["", "two-way, 99%", "two-way, 100%", HIGH, SEEN, "mean TV, 1- / 2- / 3-way", "valid records"], rows)}
- **Knowing nothing of pairs beats dpc on pairs**: a two-way average of {average("DP independence")} against
  {average("dpc")}. It is not only that independence has the better noise (Gaussian, tightly accounted, where dpc has
  the paper's Laplace and advanced composition): [with a quarter of the budget](epsilon_sweep.md) its average is
  {quarter}. Noise on 105 tables costs more than most correlations are worth.
- dpc is better where correlation is strong, on the {adult["outputs"]["dpc"]["classes"][HIGH]["queries"]} pairs of
  dummies with |r| >= 0.5, and its worst error is smaller ({_mean(adult, "dpc", "two-way", 100, "maximum"):,.0f} against
  {_mean(adult, "DP independence", "two-way", 100, "maximum"):,.0f}).
- **{valid:.2f}% of dpc's rows are valid records.** The others have no level or several of some attribute: an analyst
  cannot turn them back into the original columns.
- On Hospital at epsilon = 1 the gain on correlated pairs is gone: {high["dpc"]:.1f} for dpc,
  {high["DP independence"]:.1f} for independence. A hospital has 55 rows, and the noise on every cell has a scale of
  {2 / hospital["epsilon_each"]:.0f}.
"""


def _curves(results: Mapping[str, Any]) -> str:
    found = results["cdfs"]
    names = {"adult": "Adult", "dss": "DSS (ours: DSS-like)", "hospital": "Hospital"}
    rows = [
        [
            kind,
            *(f"{found[name]['cop'][kind]['best_99_maximum']:,.0f} (*{paper.COP_99[kind][name]}*)" for name in names),
        ]
        for kind in ("one-way", "two-way")
    ]
    return f"""
## What the copula loses before any noise

`cop` is the copula on exact tables, `cop-ID` and `cop-1` the same with independent and with fully dependent dummies,
`no-cor` the product of exact means. Maximum error of cop's best 99%, and *the paper's*:

{record.table(["", *names.values()], rows)}
(One run. On Adult the bins are ours, and on two-way queries the copula loses less than the paper's; DSS-like is not
DSS.)

![Without differential privacy](cdfs_without_dp.png)

As in the paper, cop, cop-ID and no-cor look alike on two-way queries, because most pairs are hardly correlated; cop-1
shows that it is not because anything goes.

![With differential privacy](cdfs_with_dp.png)

With noise, dpc follows Lap on one-way queries and is well below it on two-way ones.

![Three-way queries](cdfs_three_way.png)

On three-way queries, for which dpc measures nothing, it is below Lap but for the last 1% (on Hospital, there too).
"""


def _split(results: Mapping[str, Any]) -> str:
    found = results["correlation_split"]

    def average(output: str, kind: str) -> str:
        return record.spread(found[output]["classes"][kind]["99"]["average"])

    high, low = (found["cop"]["classes"][kind]["queries"] for kind in (HIGH, LOW))
    rows = [[output, average(output, HIGH), average(output, LOW)] for output in found]
    return f"""
## Where correlation matters

{high:,} of Hospital's {high + low:,} pairs of dummies have |r| >= 0.5 (the paper: {paper.CORRELATED_PAIRS:,} of
{paper.PAIRS:,}). Average error of the best 99%, without noise:

{record.table(["", "|r| >= 0.5", "|r| < 0.5"], rows)}
![Correlation split](correlation_split.png)

On them cop is several times nearer than independence, and on the rest all but cop-1 are alike, as the paper says.
"""


def _sweep(results: Mapping[str, Any]) -> str:
    found = results["epsilon_sweep"]
    rows = []
    for epsilon, by_output in found.items():
        cells: list[object] = [epsilon]
        for kind in ("one-way", "two-way"):
            best = by_output["dpc"]["classes"][kind]["100"]
            printed = paper.SWEEP.get(float(epsilon), {}).get(kind)
            shown = f"{record.spread(best['average'])} / {record.spread(best['maximum'])}"
            cells.append(shown + (f", *paper {printed[0]} / {printed[1]:,}*" if printed else ""))
        cells.append(record.spread(by_output["DP independence"]["classes"]["two-way"]["100"]["average"]))
        rows.append(cells)
    crossing = next(
        (
            epsilon
            for epsilon, by_output in found.items()
            if record.mean(by_output["dpc"]["classes"]["two-way"]["100"]["average"])
            < record.mean(by_output["DP independence"]["classes"]["two-way"]["100"]["average"])
        ),
        None,
    )
    return f"""
## More budget

Adult, all queries, average / maximum error:

{record.table(["epsilon", "dpc, one-way", "dpc, two-way", "DP independence, two-way average"], rows)}
![Epsilon sweep](epsilon_sweep.png)

More budget mends the one-way answers and hardly the two-way ones; of the epsilons tried, dpc's two-way average passes
below that of DP independence {f"at {crossing}" if crossing else "nowhere"} for the first time. Averages agree with the
paper's within about a tenth; a maximum is one error out of 194 or 16,778 and agrees only roughly.
"""


def _learning(results: Mapping[str, Any]) -> str:
    rows = [
        [trained, *(record.spread(found[measure], 3) for found in learners.values() for measure in ("accuracy", "auc"))]
        for trained, learners in results["learning"].items()
    ]
    head = [
        f"{learner}, {measure}"
        for learner in next(iter(results["learning"].values()))
        for measure in ("accuracy", "AUC")
    ]
    return f"""
## What an analyst would lose

Trained on synthetic Adult rows, tested on the real UCI test split, predicting income:

{record.table(["trained on", *head], rows)}
dpc's rows still teach the main effects, although hardly any of them is a valid record.
"""


def _times(document: Mapping[str, Any]) -> str:
    rows = [
        [
            found["title"],
            f"{found['rows']:,}",
            f"{found['attributes']:,}",
            f"{found['dummies']:,}",
            f"{found['total_seconds']:,.1f} s",
            f"*{paper.TIMES[name][0]:,} rows, {paper.TIMES[name][3]}*",
        ]
        for name, found in document["results"].items()
    ]
    adult, wide = document["results"]["adult"]["total_seconds"], document["results"]["syn1"]
    theirs = paper.seconds_of(paper.TIMES["adult"][3])
    hours = wide["seconds"]["count"] * paper.TIMES["syn1"][0] / wide["rows"] / 3600
    return f"""
## Time

From the file to the last synthetic row of dpc, on {document["header"]["machine"]} that other work shared; the paper
had 10 cores and 128 GB. Stages are in [runtimes.md](runtimes.md); `--full` runs all rows.

{record.table(["", "rows", "attributes", "dummies", "ours", "the paper"], rows)}
Adult takes {adult:.1f} s where the paper needed {theirs:.0f} s: the Gaussian correlations are solved instead of
bisected over a
numerical double integral, and the nearest correlation matrix takes a few Newton steps. Only counting and sampling grow
with the rows; for Syn 1 counting would take about {hours:.1f} h at this rate for all {paper.TIMES["syn1"][0]:,}.
"""


def _illustrations(found: Mapping[str, Any]) -> str:
    order, costs = found["artificial_order"], found["literal_cost_adult"]

    def counts(values: Sequence[float]) -> str:
        return " / ".join(f"{value:.0f}" for value in values)

    second = order["3, 1, 2"]
    prefix = next(row for row in found["reversed_prefix"] if row["n"] == 100 and row["share"] == 0.25)
    jump = found["pearson_sensitivity"][-1]
    return f"""
## Illustrations

![Two warnings](illustrations.png)

- **Artificial order.** Of 100 / 200 / 100 rows a copula through numbers keeps all three counts when statuses are 1,
  2, 3 (Pearson {order["1, 2, 3"]["pearson"]:.3f}) and gives {counts(second["expected_counts"])} when they are 3, 1, 2
  (Pearson {second["pearson"]:.3f}; the paper prints {paper.PRINTED_PEARSON}). The paper's draw,
  {counts(second["paper_counts"])}, is what comes out when the numbers keep the old margin:
  {counts(second["expected_counts_old_margin"])} expected. The point stands either way.
- **Reversed prefix.** Reversing the first quarter of 100 ranks lowers r by {prefix["computed"]:.6f}. The paper's
  formula gives {prefix["printed"]:.6f}: its first factor should be 1 + (1/lambda - 1)/(n + 1), with a plus; then it
  gives {prefix["formula"]:.6f}. The limit for large n is the same.
- **Sensitivity of Pearson.** One row moves r from {jump["before"]:.2f} to {jump["after"]:.4f} at n = {jump["n"]:,}:
  noise belongs on counts, not on r. (The paper has sqrt(1 - 1/n) for the first; it is 1.)
- **The literal Algorithm 2** costs {costs["noisy cells"]["in_units_of_epsilon_each"]:,} e' on Adult where
  {costs["claimed"]["in_units_of_epsilon_each"]} e' is claimed, since one row moves many dummy pairs; even if only
  ratios came out it would be {costs["ratios only"]["in_units_of_epsilon_each"]} e'. By advanced composition that is
  epsilon = {costs["noisy cells"]["advanced_epsilon"]:.1f} or {costs["ratios only"]["advanced_epsilon"]:.2f} instead of
  {costs["claimed"]["advanced_epsilon"]:.2f}. One noisy table per pair of attributes costs what is claimed, and that is
  what `dpc` here does.
"""


def _data() -> str:
    commands = "\n".join(f"python -m experiments.{name}" for name in (*PARTS, "page"))
    return f"""
## Run it again

<!-- not run: it takes hours -->
```bash
{commands}
```

Each writes its JSON, Markdown and figures here, with versions, seeds and the command in the header. Noise comes from
the operating system and cannot be seeded. Adult and Hospital
are read from `../shared/data`, or from a folder given with `--data DIR` that holds `adult.csv`, `adult_test.csv`,
`adult.toml`, `hospital.csv` and `hospital.toml`:

- **Adult**: [UCI](https://archive.ics.uci.edu/dataset/2/adult), `adult.data` and `adult.test`, with a header line and
  `?` for missing. The schema leaves out fnlwgt, keeps income, lists the categories of the UCI documentation, and bins
  age by five years from 15 to 95, capital-gain by 5,000 up to 100,000, capital-loss by 250 up to 4,500 and
  hours-per-week by five from 1 to 101: 14 attributes, 194 levels. The paper has 32,560 rows; the file has 32,561.
- **Hospital**: CMS Hospital Compare, [archived data](https://data.cms.gov/provider-data/archived-data/hospitals),
  "HCAHPS - Hospital" of 2016, the first 10,000 rows and 9 columns; the schema lists the values of the public directory.
- **DSS, Syn 1, Syn 2**: generated (`sklar generate dss`).
"""


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=record.RESULTS, hidden=True)
def main(out: Path) -> None:
    """Write docs/results/README.md from the recorded results."""
    documents = {name: json.loads((out / f"{name}.json").read_text(encoding="utf-8")) for name in PARTS}
    header = "\n".join(f"{key}: {value}" for key, value in facts(documents).items())
    write_text(out / "README.md", f"<!--\n{header}\n-->\n\n{page(documents)}")


if __name__ == "__main__":
    main()
