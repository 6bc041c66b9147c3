import csv
import io
import re

import pytest
from experiment_parts import made_results, system_row

from blockxmc.paper.experiments import published, tables, verdicts
from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.figures import figure_alps, figure_lambda, figure_q, lambda_curve
from blockxmc.paper.experiments.pictures import figure_blocks
from blockxmc.paper.experiments.writing import as_csv, as_dict, as_markdown

BP = {
    "speedup_paper": 4.0,
    "speedup": 3.0,
    "batch_us": 50.0,
    "partition_seconds": 1.0,
    "router_seconds": 0.5,
    "blocks": 7,
}
BP |= {"blocks_seconds": 2.0, "router_predict_seconds": 0.002}
ROWS = {
    "bibtex/data": {"train_rows": 4880, "test_rows": 2515, "scored_rows": 2515, "features": 1836, "labels": 159, "samples_per_label": 73.06,
                    "labels_per_sample": 2.38, "nnz_per_row": 68.5},
    "bibtex/full/leml": system_row((62.0, 38.0, 28.0)),
    "bibtex/bp-accuracy/leml": system_row((61.5, 37.5, 27.5), **BP),
    "bibtex/bp-speed/leml": system_row((60.0, 37.0, 27.0), **BP),
    "bibtex/cbmlc/leml": system_row((61.0, 36.0, 26.0)),
    "bibtex/lpsr/naive-bayes": system_row((50.0, 30.0, 20.0)),
    "bibtex/fastxml": system_row((63.42, 39.0, 29.0), speedup_paper=None),
    "bibtex/bp-default": system_row((66.0, 41.0, 30.0)),
}  # fmt: skip

# ruff: noqa: E501
PRECISION = """\
## P@k, PSP@k and prediction speed-up

| Data | Method | P@1 | P@3 | P@5 | PSP@1 | PSP@3 | PSP@5 | Speed-up | Speed-up, router counted | µs/row | Speed-up, measured |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| bibtex | LEML | 62.00 (62.54, −0.54) | 38.00 (38.41, −0.41) | 28.00 (28.21, −0.21) | 62.00 | 38.00 | 28.00 | 1.0x | 1.0x | 100.0 | 1.0x |
| bibtex | BP LEML (accuracy-driven) | 61.50 | 37.50 | 27.50 | 61.50 | 37.50 | 27.50 | 4.0x | 3.0x | 50.0 | 2.0x |
| bibtex | BP LEML (speed-driven) | 60.00 | 37.00 | 27.00 | 60.00 | 37.00 | 27.00 | 4.0x | 3.0x | 50.0 | 2.0x |
| bibtex | CBMLC LEML | 61.00 | 36.00 | 26.00 | 61.00 | 36.00 | 26.00 | 1.0x | 1.0x | 100.0 | 1.0x |
| bibtex | LEML, to the letter | not computed | – | – | – | – | – | – | – | – | – |
| bibtex | BP LEML, to the letter (accuracy-driven) | not computed | – | – | – | – | – | – | – | – | – |
| bibtex | BP LEML, to the letter (speed-driven) | not computed | – | – | – | – | – | – | – | – | – |
| bibtex | CBMLC LEML, to the letter | not computed | – | – | – | – | – | – | – | – | – |
| bibtex | LPSR-NB | 50.00 (62.11, −12.11) | 30.00 (36.65, −6.65) | 20.00 (26.53, −6.53) | 50.00 | 30.00 | 20.00 | 1.0x | 1.0x | 100.0 | – |
| bibtex | FastXML | 63.42 (63.42, +0.00) | 39.00 (39.23, −0.23) | 29.00 (28.86, +0.14) | 63.42 | 39.00 | 29.00 | – | 1.0x | 100.0 | – |
| bibtex | Label filters DiSMEC | failed: MemoryError: 7 \\| 8 GB | – | – | – | – | – | – | – | – | – |
| bibtex | BP (library default) | 66.00 | 41.00 | 30.00 | 66.00 | 41.00 | 30.00 | 1.0x | 1.0x | 100.0 | – |
"""


@pytest.fixture
def results():
    return made_results(ROWS, {"bibtex/lf/dismec": "MemoryError: 7 | 8 GB"})


def test_precision_table_in_markdown(results):
    table = tables.table_precision(results)[0]
    text = as_markdown(table)
    assert text.startswith(PRECISION)
    assert "†" not in text
    assert text.endswith("In brackets: the published figure, and ours less theirs.\n")


def test_time_router_and_recall_tables(results):
    (table,) = tables.table_time(results)
    assert (
        as_markdown(table).splitlines()[4] == "| bibtex | LEML | 1.00 | 0.50 | 2.00 | 10.00 | 10.00 | 10.00 | 10.00 |"
    )
    (table,) = tables.table_router(results)
    assert as_markdown(table).splitlines()[4] == "| bibtex | BP LEML (speed-driven) | 7 | 0.500 | 0.0020 | 500.00 |"
    (table,) = tables.table_recall(results)
    assert as_markdown(table).splitlines()[4:6] == [
        "| bibtex | LEML | 62.00 | 38.00 | 28.00 |",
        "| bibtex | BP LEML (speed-driven) | 60.00 | 37.00 | 27.00 |",
    ]


def test_systems_show_what_failed_and_where_hits_come_from(results):
    whole, training, deciles = tables.table_systems(results)
    assert any(entry.value == "not computed" for row in whole.rows for entry in row)
    shares = next(row for row in deciles.rows if row[1].value == "LEML")[3:]
    assert [entry.value for entry in shares] == [10.0] * 10
    assert shares[2].key == "deciles.precision[2]"
    for table in (whole, training, deciles):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_training_of_bp_stands_beside_its_base():
    spent = {f"{part}_cpu_seconds": value for part, value in (("partition", 1.0), ("router", 0.5), ("blocks", 2.0))}
    rows = ROWS | {
        "bibtex/bp-quick/leml": ROWS["bibtex/full/leml"] | {"candidates": 40.0, "train_cpu_seconds": 4.0, **spent},
        "bibtex/full/leml": ROWS["bibtex/full/leml"] | {"train_cpu_seconds": 9.0},
    }
    text = as_markdown(tables.table_systems(made_results(rows))[1])
    assert "| bibtex | LEML | 40.0 | 1.00 | 0.50 | 2.00 | 4.00 | 9.00 |" in text


def test_systems_as_published_stand_beside_published_figures():
    figures = {"P@1": 61.0, "P@3": 36.0, "P@5": 26.0}
    (table,) = tables.table_published(made_results(ROWS | {"bibtex/published/lpsr": figures}))
    assert "| bibtex | LPSR-NB as published | 61.00 (62.11, −1.11) |" in as_markdown(table)


def test_csv_and_json_hold_raw_numbers_and_their_cells(results):
    table = tables.table_precision(results)[0]
    lines = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert (lines[0]["P@1"], lines[0]["P@1 published"], lines[0]["cells"]) == ("62.0", "62.54", "bibtex/full/leml")
    assert lines[1]["P@1 published"] == ""
    assert "PSP@1 published" not in lines[0]
    cell = as_dict(table)["rows"][0]["P@1"]
    assert cell == {"value": 62.0, "cell": "bibtex/full/leml", "key": "P@1", "published": 62.54}


def test_a_part_of_the_test_rows_is_marked_with_a_dagger():
    rows = ROWS | {"bibtex/data": ROWS["bibtex/data"] | {"scored_rows": 100}}
    table = tables.table_precision(made_results(rows, max_test_rows=100))[0]
    text = as_markdown(table)
    assert "| 62.00† (62.54, −0.54) |" in text
    assert "| 4.0x | 3.0x |" in text  # a count of products is no score
    assert "† scored on a random 100 of the test rows." in text


def test_published_figures_of_the_paper():
    assert published.published("amazon-670k", "bp-speed/leml", "speedup_paper") == 2780
    assert published.published(published.known_as("Delicious_200K"), "bp-speed/dismec", "R@5") == 3.50
    assert published.published("wikilshtc-325k", "bp-speed/dismec", "partition_seconds") == 89613
    assert published.published("wiki10-31k", "bp-speed/leml", "blocks") == 3
    assert published.published("amazoncat-13k", "data", "train_rows") == 1186239
    assert published.source("wiki10-31k") == "the paper"
    assert published.source(published.known_as("elsewhere")) == ""
    unpacked = {
        name: published.known_as(name) for name in ("Amazon", "WikiLSHTC", "AmazonCat", "Wiki10", "DeliciousLarge")
    }
    assert set(unpacked.values()) == {"amazon-670k", "wikilshtc-325k", "amazoncat-13k", "wiki10-31k", "delicious-200k"}
    assert published.known_as("Bibtex") == "bibtex"
    rows = {"amazon-670k/full/pd-sparse": system_row((25.41, 20.0, 19.0))}
    table = tables.table_precision(made_results(rows, data=("amazon-670k",), bases=("pd-sparse",)))[0]
    assert "25.41 (24.41†, +1.00)" in as_markdown(table)


def test_label_filters_that_are_slower_than_their_base_are_called_so():
    rows = {
        "bibtex/full/dismec": system_row((62.0, 38.0, 28.0)),
        "bibtex/lf/dismec": system_row((62.0, 38.0, 28.0), speedup_paper=6.4, batch_us=400.0),
    }
    note = tables.table_precision(made_results(rows, bases=("dismec",)))[0].note
    assert "Label filters are slower than their base (bibtex 6.4x counted, 0.25x measured)" in note
    rows["bibtex/lf/dismec"]["batch_us"] = 50.0
    assert "slower" not in tables.table_precision(made_results(rows, bases=("dismec",)))[0].note


def tuned(lam=0.5, feasible=(True, True), **more):
    point = {"n_blocks": 3, "lam": lam, "loss": 1.0, "products": 9.0, "assigned_at": [0.1, lam]}
    fold = {
        "base": [60.0] * 3,
        "precision": [[60.0] * 3, [59.0] * 3],
        "candidates": [40.0, 5.0],
        "interval": [0.1, lam],
    }
    return {
        "lams": [0.1, lam],
        "feasible": list(feasible),
        "folds": [fold, fold | {"interval": None}],
        "speed_driven": point if any(feasible) else None,
        "accuracy_driven": point | {"lam": 0.1, "assigned_at": [0.1]},
        "least_loss": point,
    } | more


def test_choices_have_the_interval_of_each_fold_for_ours_and_the_letter():
    rows = ROWS | {"bibtex/tune/leml": tuned(), "bibtex/tune-letter/leml": tuned(2.0, (False, False))}
    table = tables.table_precision(made_results(rows))[1]
    ours, letter = ([entry.value for entry in row] for row in table.rows)
    assert ours[:8] == ["bibtex", "LEML", "0.1 to 0.5; none", "0.1, 0.5", 3, 0.5, 1.0, 9.0]
    assert letter[1:4] == ["LEML, to the letter", "0.1 to 2; none", "none"]


def test_every_row_has_the_command_that_trains_it():
    rows = ROWS | {"bibtex/tune/leml": tuned(), "bibtex/cbmlc/leml": ROWS["bibtex/cbmlc/leml"] | {"blocks": 3}}
    rows["bibtex/full-letter/leml"] = ROWS["bibtex/full/leml"]
    table = tables.table_precision(made_results(rows))[2]
    said = {row[1].value: row[-1].value for row in table.rows}
    unit = "blockxmc train bibtex-unit/train.txt --model MODEL"
    assert said["BP LEML (speed-driven)"] == (
        f"{unit} --base leml --blocks 3 --lam 0.5 --assign-at 0.1,0.5 --weights per-block --route 1"
    )
    assert said["CBMLC LEML"] == f"{unit} --system cbmlc --base leml --blocks 3"
    assert (
        said["LEML, to the letter"]
        == "blockxmc train bibtex/train.txt --model MODEL --system full --base leml --letter"
    )
    assert said["BP (library default)"] == unit


def test_constants_of_psp_are_told(results):
    assert "A and B of PSP: bibtex 0.55, 1.5." in tables.table_precision(results)[0].note


def test_loss_is_paired_by_row():
    full = system_row((100.0, 100.0, 100.0)) | {"hits": {"1": "1111", "3": "3333", "5": "5555"}}
    own = system_row((50.0, 75.0, 100.0)) | {"hits": {"1": "1010", "3": "3330", "5": "5555"}}
    results = made_results({"bibtex/full/leml": full, "bibtex/bp-speed/leml": own})
    pair = Cell("bibtex", "bp-speed", "leml"), Cell("bibtex", "full", "leml")
    assert results.loss(*pair, 1) == pytest.approx((50.0, 100 / 3**0.5 / 2))
    assert results.loss(*pair, 3) == pytest.approx((25.0, 25.0))
    assert results.loss(*pair, 5) == (0.0, 0.0)
    assert results.loss(Cell("bibtex", "cbmlc", "leml"), pair[1], 1) is None


def test_lambda_curve_is_the_mean_over_folds():
    folds = [
        {"base": [60.0, 40.0, 30.0], "precision": [[58.0, 38.0, 28.0]], "candidates": [4.0]},
        {"base": [62.0, 40.0, 30.0], "precision": [[60.0, 38.0, 28.0]], "candidates": [6.0]},
    ]
    curve = lambda_curve({"lams": [0.1], "n_labels": 100, "folds": folds})
    assert curve.base.tolist() == [61.0, 40.0, 30.0]
    assert curve.precision.tolist() == [[59.0, 38.0, 28.0]]
    assert curve.speedup.tolist() == [20.0]


def test_figures_say_what_failed():
    errors = {f"bibtex/{cell}": "MemoryError: too large" for cell in ("blocks", "q", "tune/leml", "bp-speed/leml")}
    results = made_results({}, errors)
    drawn = [*figure_blocks(results), *figure_q(results), *figure_lambda(results)]
    # An SVG spells text as outlines, but keeps what they spell in comments.
    assert len(drawn) == 3
    for figure in drawn:
        assert "MemoryError: too large" in "".join(re.findall(r"<!-- (.*?) -->", figure.svg.decode()))
    assert figure_alps(results)[0].points.rows == []


# ---- verdicts ----
def verdict(rows, claim, **how):
    (judged,) = [known for known in verdicts.CLAIMS if known.name == claim]
    (found,) = judged.judge(made_results(rows, **how))
    return found.verdict, found.measured


def test_a_claim_without_numbers_is_not_judged():
    short, whole = verdicts.table_verdicts(made_results({}))
    assert {row[4].value for row in whole.rows} == {"not computed"}
    assert all(row[2].value == row[3].value == row[4].value == "–" for row in short.rows)


def test_what_was_left_out_is_not_called_not_computed():
    results = made_results({})
    results.contents["bibtex/bp-speed/leml"] = {"cell": "bibtex/bp-speed/leml", "error": "left out"}
    (claim,) = [known for known in verdicts.CLAIMS if known.name == "Loss of P@k"]
    assert [one.verdict for one in claim.judge(results)] == ["left out"]


def seeded(*values):
    return {f"P@{k}": list(values) for k in (1, 3, 5)}


@pytest.mark.parametrize(
    ("seeds", "feasible", "expected"),
    [
        ((61.0, 61.0, 61.0), True, "holds"),
        ((60.0, 60.2, 59.8), True, "cannot be told"),  # 2 points, give or take the seeds
        ((57.0, 57.1, 57.2), True, "does not hold"),
        ((61.0, 61.0, 61.0), False, "does not hold"),
    ],
)
def test_the_verdict_on_the_loss_is_beyond_one_standard_error(seeds, feasible, expected):
    own = ROWS["bibtex/bp-speed/leml"] | {"seeds": seeded(*seeds), "feasible": feasible}
    full = ROWS["bibtex/full/leml"] | {"seeds": seeded(62.0, 62.0, 62.0)}
    rows = ROWS | {"bibtex/bp-speed/leml": own, "bibtex/full/leml": full}
    found, told = verdict(rows, "Loss of P@k")
    assert found == expected
    assert "± " in told


def test_the_error_of_a_loss_has_the_spread_of_the_seeds():
    own, full = ROWS["bibtex/bp-speed/leml"] | {"seeds": seeded(60.0, 61.0, 62.0)}, ROWS["bibtex/full/leml"]
    results = made_results(ROWS | {"bibtex/bp-speed/leml": own})
    loss, error = results.loss(Cell("bibtex", "bp-speed", "leml"), Cell("bibtex", "full", "leml"), 1)
    assert loss == pytest.approx(full["P@1"] - 61.0)
    assert error == pytest.approx((1 / 3) ** 0.5)


def test_verdicts_on_leml_cbmlc_and_lpsr():
    better = ROWS | {
        "bibtex/bp-accuracy/leml": ROWS["bibtex/bp-accuracy/leml"] | {"P@1": 70.0, "P@3": 70.0, "P@5": 70.0}
    }
    assert verdict(better, "BP over LEML above LEML")[0] == "holds"
    assert verdict(ROWS, "BP over LEML above LEML")[0] == "does not hold"
    assert verdict(better, "BP beside CBMLC")[0] == "does not hold"  # the paper has CBMLC ahead with LEML
    assert verdict(better, "BP beside CBMLC")[1].startswith("BP +")
    assert verdict(ROWS, "LPSR-NB") == ("holds", "P@1 -12.00 ± 0.00")


def test_verdicts_on_times_within_a_tenth_cannot_be_told():
    for seconds, expected in ((8.0, "holds"), (9.9, "cannot be told"), (12.0, "does not hold")):
        rows = ROWS | {"bibtex/bp-speed/leml": ROWS["bibtex/bp-speed/leml"] | {"train_cpu_seconds": seconds}}
        assert verdict(rows, "Shorter training") == (expected, f"{seconds:.2f} of 10.00 CPU s")
    for us, expected in ((50.0, "holds"), (98.0, "cannot be told"), (120.0, "does not hold")):
        rows = ROWS | {"bibtex/bp-speed/leml": ROWS["bibtex/bp-speed/leml"] | {"batch_us": us}}
        assert verdict(rows, "Faster prediction")[0] == expected


def test_verdicts_on_lambda_need_more_than_the_error_of_the_folds():
    def folds(*precision):
        return [
            {"base": [60.0], "precision": [[p] for p in fold], "candidates": [40.0, 9.0, 5.0]} for fold in precision
        ]

    lams = [0.1, 0.5, 1.0]
    clear = {"bibtex/tune/leml": {"folds": folds((60.0, 61.0, 50.0), (60.0, 61.2, 50.0)), "lams": lams}}
    assert verdict(clear, "The smallest lambda") == ("holds", "lambda 0.5: +1.10 ± 0.10 mean P@k")
    assert verdict(clear, "Lambda trades")[0] == "holds"
    noisy = {"bibtex/tune/leml": {"folds": folds((60.0, 63.0, 50.0), (60.0, 58.0, 50.0)), "lams": lams}}
    assert verdict(noisy, "The smallest lambda")[0] == "cannot be told"


def test_the_automatic_q_is_judged_to_the_letter():
    plan = {"unbounded": [True, False], "paper": [9, 3], "lams": [0.1, 0.5]}
    assert verdict({"bibtex/plan-letter": plan}, "A unique q") == (
        "does not hold",
        "a pair died at 1 of 2 lambdas; q from 3 to 9",
    )
    ends = plan | {"unbounded": [False, False]}
    assert verdict({"bibtex/plan-letter": ends}, "A unique q")[0] == "holds"
    rows = ROWS | {"bibtex/full-letter/leml": ROWS["bibtex/full/leml"]}
    rows["bibtex/bp-letter-speed/leml"] = ROWS["bibtex/bp-speed/leml"] | {"P@1": 61.5, "P@3": 37.5, "P@5": 27.5}
    assert verdict(rows, "The automatic q")[0] == "holds"


def test_speed_up_and_labels_per_row_are_judged_over_the_sets():
    data = ("a", "b", "c", "d", "e")
    rows = {f"{name}/data": {"labels_per_sample": float(i)} for i, name in enumerate(data)}
    for i, name in enumerate(data):
        rows[f"{name}/bp-speed/dismec"] = system_row((60.0, 40.0, 30.0), speedup_paper=2.0**i)
    how = {"data": data, "bases": ("dismec",)}
    assert verdict(rows, "Speed-up and labels per row", **how) == ("holds", "rank correlation +1.00 over 5 sets")


def test_psp_and_recall_have_verdicts():
    assert verdict(ROWS, "Loss of PSP@k")[0] == "holds"
    low = ROWS | {"bibtex/bp-speed/leml": ROWS["bibtex/bp-speed/leml"] | {"PSP@1": 50.0, "R@5": 10.0}}
    assert verdict(low, "Loss of PSP@k")[0] == "does not hold"
    assert verdict(low, "Recall")[0] == "does not hold"
