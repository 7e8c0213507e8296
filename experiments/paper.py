"""What the paper printed, to stand beside what we measure. Asghar et al. 2020, sections 6 and 7 and the appendix."""

from __future__ import annotations

# Average and maximum absolute error of the best 95%, 99% and 100% of the queries.
ERRORS = {
    "adult": {
        "dpc": {
            "one-way": ((92, 389), (107, 482), (106, 773)),
            "two-way": ((18, 184), (29, 504), (38, 4788)),
            "three-way, count > 0": ((12, 120), (20, 408), (28, 6148)),
        },
        "Lap": {
            "one-way": ((85, 353), (99, 505), (105, 741)),
            "two-way": ((58, 317), (72, 536), (78, 1246)),
            "three-way, count > 0": ((102, 591), (128, 1002), (138, 2508)),
        },
    },
    "hospital": {
        "dpc": {
            "one-way": ((53, 208), (61, 302), (65, 622)),
            "two-way": ((1, 5), (1, 22), (1, 836)),
            "three-way, count > 0": ((1, 3), (3, 55), (3, 616)),
        },
        "Lap": {
            "one-way": ((52, 199), (61, 299), (61, 887)),
            "two-way": ((31, 199), (40, 333), (43, 1119)),
            "three-way, count > 0": ((45, 281), (57, 477), (63, 1361)),
        },
    },
    "dss": {
        "dpc": {
            "one-way": ((151, 657), (175, 982), (185, 1267)),
            "two-way": ((7, 108), (15, 426), (23, 5744)),
            "three-way, count > 0": ((9, 98), (16, 372), (36, 9238)),
        },
        "Lap": {
            "one-way": ((149, 621), (172, 963), (182, 1287)),
            "two-way": ((99, 594), (125, 995), (136, 2947)),
            "three-way, count > 0": ((268, 1651), (342, 2805), (726, 9562)),
        },
    },
}

# cop (no noise), maximum error of the best 99% of the queries.
COP_99 = {"one-way": {"adult": 149, "dss": 170, "hospital": 28}, "two-way": {"adult": 353, "dss": 83, "hospital": 6}}

# dpc on Adult, average and maximum over all queries.
SWEEP = {0.25: {"one-way": (357, 3419), "two-way": (68, 6421)}, 5.0: {"one-way": (41, 179), "two-way": (27, 5882)}}

# Hospital: pairs of dummies of distinct attributes, and those with |r| >= 0.5.
PAIRS, CORRELATED_PAIRS = 626_491, 3_355

# Rows, attributes, dummies and time on 10 cores of an Intel Xeon E5-2660 at 2.6 GHz with 128 GB.
TIMES = {
    "adult": (32_560, 14, 194, "6 min 47 s"),
    "dss": (5_240_260, 27, 674, "2 h 30 min"),
    "hospital": (10_000, 9, 1_201, "46 min 21 s"),
    "syn1": (5_240_260, 1_000, 1_000, "5 h 43 min"),
    "syn2": (5_240_260, 2_000, 2_000, "18 h 32 min"),
}

# The copula through numbers, 400 rows: counts of the three pairs that occur, by map of the second attribute.
THROUGH_NUMBERS = {"1, 2, 3": (112, 193, 95), "3, 1, 2": (47, 35, 46)}
PRINTED_PEARSON = -0.457
