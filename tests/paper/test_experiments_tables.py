import csv
import io
import re

import pytest
from experiment_parts import made_results, system_row

from blockxmc.paper.experiments import published, tables, verdicts
from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.conclusions import conclude
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
| bibtex | LPSR-NB | 50.00 (62.11, −12.11) | 30.00 (36.65, −6.65) | 20.00 (26.53, −6.53) | 50.00 | 30.00 | 20.00 | 1.0x | 1.0x | 100.0 | – |
| bibtex | FastXML | 63.42 (63.42, +0.00) | 39.00 (39.23, −0.23) | 29.00 (28.86, +0.14) | 63.42 | 39.00 | 29.00 | – | 1.0x | 100.0 | – |
| bibtex | Label filters DiSMEC | failed: MemoryError: 7 \\| 8 GB | – | – | – | – | – | – | – | – | – |
| bibtex | BP (library default) | 66.00 | 41.00 | 30.00 | 66.00 | 41.00 | 30.00 | 1.0x | 1.0x | 100.0 | – |
"""


@pytest.fixture
def results():
    return made_results(ROWS, {"bibtex/lf/dismec": "MemoryError: 7 | 8 GB"})


def test_precision_table_in_markdown(results):
    table, _ = tables.table_precision(results)
    text = as_markdown(table)
    assert text.startswith(PRECISION)
    assert "†" not in text
    assert text.endswith("In brackets: the published figure, and ours less theirs.\n")


def test_time_router_and_recall_tables(results):
    (table,) = tables.table_time(results)
    assert as_markdown(table).splitlines()[4] == "| bibtex | LEML | 1.00 | 0.50 | 2.00 | 10.00 | – | 10.00 | – |"
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
        "bibtex/plan": {"search_cpu_seconds": 3.0},
        "bibtex/quick/leml": {"tune_cpu_seconds": 5.0},
    }
    text = as_markdown(tables.table_systems(made_results(rows))[1])
    assert "| bibtex | LEML | 40.0 | 1.00 | 0.50 | 2.00 | 4.00 | 9.00 | 3.00 | 5.00 |" in text


def test_systems_as_published_stand_beside_published_figures():
    figures = {"P@1": 61.0, "P@3": 36.0, "P@5": 26.0}
    (table,) = tables.table_published(made_results(ROWS | {"bibtex/published/lpsr": figures}))
    assert "| bibtex | LPSR-NB as published | 61.00 (62.11, −1.11) |" in as_markdown(table)


def test_csv_and_json_hold_raw_numbers_and_their_cells(results):
    table, _ = tables.table_precision(results)
    lines = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert (lines[0]["P@1"], lines[0]["P@1 published"], lines[0]["cells"]) == ("62.0", "62.54", "bibtex/full/leml")
    assert lines[1]["P@1 published"] == ""
    assert "PSP@1 published" not in lines[0]
    cell = as_dict(table)["rows"][0]["P@1"]
    assert cell == {"value": 62.0, "cell": "bibtex/full/leml", "key": "P@1", "published": 62.54}


def test_a_part_of_the_test_rows_is_marked_with_a_dagger():
    rows = ROWS | {"bibtex/data": ROWS["bibtex/data"] | {"scored_rows": 100}}
    table, _ = tables.table_precision(made_results(rows, max_test_rows=100))
    text = as_markdown(table)
    assert "| 62.00† (62.54, −0.54) |" in text
    assert "| 4.0x | 3.0x |" in text  # a count of products is no score
    assert "† scored on a random 100 of the test rows." in text


def test_published_figures_of_the_paper():
    assert published.published("amazon-670k", "bp-speed/leml", "speedup_paper") == 2780
    assert published.published("Delicious_200K", "bp-speed/dismec", "R@5") == 3.50
    assert published.published("wikilshtc-325k", "bp-speed/dismec", "partition_seconds") == 89613
    assert published.published("wiki10-31k", "bp-speed/leml", "blocks") == 3
    assert published.published("amazoncat-13k", "data", "train_rows") == 1186239
    assert published.source("wiki10-31k") == "the paper"
    assert published.source("elsewhere") == ""
    rows = {"amazon-670k/full/pd-sparse": system_row((25.41, 20.0, 19.0))}
    (table,) = tables.table_precision(made_results(rows, data=("amazon-670k",), bases=("pd-sparse",)))
    assert "25.41 (24.41†, +1.00)" in as_markdown(table)


def test_conclusion_says_what_is_within_the_tolerance(results):
    text = conclude(results, "bibtex")
    assert "accuracy-driven BP loses at most 0.00 points" in text
    assert "on LEML (3.0x counted, 2.0x measured speed-up)" in text
    assert "Speed-driven BP pays for LEML: faster, with every loss within the tolerance of 2 points plus one" in text
    assert text.count(". ") == 1


def test_conclusion_says_what_is_not(results):
    worse = ROWS | {"bibtex/bp-speed/leml": system_row((60.0, 37.0, 27.0), hits="4", **BP)}
    text = conclude(made_results(worse), "bibtex")
    assert "loses at most 20.00 points" in text
    assert "its loss exceeds the tolerance of 2 points plus one standard error for LEML (20.00 points)." in text
    one_bad = made_results(
        worse | {cell.replace("leml", "dismec"): row for cell, row in ROWS.items()}, bases=("leml", "dismec")
    )
    both = conclude(one_bad, "bibtex")
    assert "Speed-driven BP pays for DiSMEC: faster" in both
    assert both.endswith("its loss exceeds the tolerance of 2 points plus one standard error for LEML (20.00 points).")
    assert both.count(". ") == 1
    point = {"precision": [61.0, 37.0, 27.0]}
    tuned = {"folds": [{"base": [62.0, 38.0, 28.0]}], "speed_driven": point, "accuracy_driven": point}
    text = conclude(made_results(worse | {"bibtex/tune/leml": tuned}), "bibtex")
    assert "20.00 points, not foreseen by cross-validation" in text
    twins = ROWS | {"bibtex/bp-speed/leml": ROWS["bibtex/bp-accuracy/leml"] | {"same_as": "bibtex/bp-accuracy/leml"}}
    assert "; speed-driven BP is the same model on LEML. " in conclude(made_results(twins), "bibtex")
    slow = {cell: row | {"batch_us": 99.0} if "bp-" in cell else row for cell, row in ROWS.items()}
    assert "but is hardly faster for LEML (1.0x)" in conclude(made_results(slow), "bibtex")
    failed = made_results({}, {"bibtex/full/leml": "MemoryError: x"})
    assert conclude(failed, "bibtex") == "Nothing can be said of LEML: a model failed or was left out, see the tables."
    assert conclude(made_results({}), "bibtex") == ""


def test_label_filters_that_are_slower_than_their_base_are_called_so():
    rows = {
        "bibtex/full/dismec": system_row((62.0, 38.0, 28.0)),
        "bibtex/lf/dismec": system_row((62.0, 38.0, 28.0), speedup_paper=6.4, batch_us=400.0),
    }
    note = tables.table_precision(made_results(rows, bases=("dismec",)))[0].note
    assert "Label filters are slower than their base (bibtex 6.4x counted, 0.25x measured)" in note
    rows["bibtex/lf/dismec"]["batch_us"] = 50.0
    assert "slower" not in tables.table_precision(made_results(rows, bases=("dismec",)))[0].note


def test_distances_from_the_base(results):
    table = tables.table_precision(results)[1]
    assert [column.title for column in table.columns][2:7] == [
        "Loss P@1", "Loss P@3", "Loss P@5", "± at most", "Beyond tolerance",
    ]  # fmt: skip
    lines = [[entry.value for entry in row] for row in table.rows]
    assert [line[1] for line in lines] == ["BP LEML (accuracy-driven)", "BP LEML (speed-driven)"]
    assert lines[0][-2:] == [3.0, 2.0]
    assert lines[0][6:10] == [None] * 4  # nothing beyond the tolerance, nothing tuned
    point = {"precision": [61.0, 37.5, 27.0]}
    tuned = {"folds": [{"base": [62.0, 38.0, 28.0]}], "speed_driven": point, "accuracy_driven": point, "interval": None}
    promised = tables.table_precision(made_results(ROWS | {"bibtex/tune/leml": tuned}))[1].rows[1]
    assert [entry.value for entry in promised[7:10]] == [1.0, 0.5, 1.0]


def test_loss_is_paired_by_row():
    full = system_row((0, 0, 0)) | {"hits": {"1": "1111", "3": "3333", "5": "5555"}}
    own = system_row((0, 0, 0)) | {"hits": {"1": "1010", "3": "3330", "5": "5555"}}
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
def verdict(results, claim, data="bibtex"):
    (judged,) = [known for known in verdicts.CLAIMS if known.name == claim]
    return judged.judge(results, data)


LOSS = "Loss below 2 points at 10x to 1000x"


def test_a_claim_without_numbers_is_not_judged():
    short, *tables = verdicts.table_verdicts(made_results({}))
    for table in tables:
        assert {row[4].value for row in table.rows} == {"not computed"}
    assert {tuple(entry.value for entry in row[2:]) for row in short.rows} == {("–", "–", "–", "bibtex")}


def test_what_was_left_out_is_not_called_not_computed():
    results = made_results({})
    results.contents["bibtex/bp-accuracy/leml"] = {"cell": "bibtex/bp-accuracy/leml", "error": "left out"}
    assert verdict(results, "BP over LEML above LEML")[1] == "left out"
    assert verdicts.table_verdicts(results)[0].rows[1][-1].value == "bibtex"


def test_claims_in_short_name_the_data_sets_of_each_verdict():
    spent = {f"{part}_cpu_seconds": 1.0 for part in ("partition", "router", "blocks")} | {"captured": 0.9}
    own = system_row((60.0, 37.0, 27.0), hits="5", **BP | spent | {"speedup_paper": 4.0, "feasible": True})
    base = ROWS["bibtex/full/leml"] | {"train_cpu_seconds": 3.5}
    results = made_results(ROWS | {"bibtex/bp-speed/leml": own, "bibtex/full/leml": base})
    short, whole, _ = verdicts.table_verdicts(results)
    heads = [column.title for column in short.columns]
    for row in short.rows:
        found = [line[4].value for line in whole.rows if line[0].value == row[0].value]
        column = "Nothing to judge" if found == ["not computed"] else found[0].capitalize()
        assert row[heads.index(column)].value == "bibtex"
    _, _, why = verdict(results, LOSS)
    assert "LEML: within the tolerance, at less than 10x" in why


@pytest.mark.parametrize(
    ("hits", "speedup", "feasible", "expected"),
    [
        ("5", 20.0, True, "holds"),
        ("5", 4.0, True, "partly"),  # kept, but not at ten times the speed
        ("4", 20.0, True, "does not hold"),  # 20 points lost at P@5
        ("5", 20.0, False, "does not hold"),
    ],
)
def test_the_verdict_on_the_loss(hits, speedup, feasible, expected):
    own = system_row((60.0, 37.0, 27.0), hits=hits, **BP | {"speedup_paper": speedup, "feasible": feasible})
    told, found, _ = verdict(made_results(ROWS | {"bibtex/bp-speed/leml": own}), LOSS)
    assert found == expected
    assert ("none within the tolerance" in told) == (not feasible)


def test_verdicts_on_leml_and_cbmlc_follow_the_paired_rows():
    _, found, why = verdict(made_results(ROWS), "BP over LEML above LEML")
    assert found == "does not hold"  # the same hits
    assert "rank 500 is no limit for 159 labels" in why
    better = ROWS | {"bibtex/full/leml": ROWS["bibtex/full/leml"] | {"hits": {"1": "0000", "3": "0000", "5": "0000"}}}
    assert verdict(made_results(better), "BP over LEML above LEML")[1] in ("holds", "partly")
    behind = ROWS | {"bibtex/cbmlc/leml": system_row((61.0, 36.0, 26.0), hits="5")}
    behind["bibtex/bp-accuracy/leml"] = behind["bibtex/bp-accuracy/leml"] | {
        "hits": {"1": "0000", "3": "0000", "5": "0000"}
    }
    told, found, _ = verdict(made_results(behind), "BP beside CBMLC")
    assert (told.startswith("LEML: BP -"), found) == (True, "holds")  # as in the paper: CBMLC is ahead with LEML


def test_the_verdict_on_the_number_of_blocks():
    pair = {"n_blocks": 3, "lam": 0.5, "loss": 1.5, "products": 30.0, "by_paper": True}
    other = pair | {"n_blocks": 8, "products": 20.0, "by_paper": False}
    plan = {"unbounded": [False, False], "lams": [0.1, 0.5]}
    for trials, unbounded, expected in (
        ([pair, other | {"products": 29.0}], False, "holds"),
        ([pair, other | {"products": 29.0}], True, "partly"),
        ([pair, other], False, "partly"),
        ([pair | {"loss": 5.0}, other], False, "does not hold"),
        ([pair | {"loss": 5.0}], False, "not computed"),
    ):
        rows = {"bibtex/tune/leml": {"scouted": trials}, "bibtex/plan": plan | {"unbounded": [unbounded] * 2}}
        assert verdict(made_results(rows), "The automatic q")[1] == expected


def test_verdicts_on_training_recall_and_lambda():
    spent = {f"{part}_cpu_seconds": 1.0 for part in ("partition", "router", "blocks")}
    fold = {"base": [60.0], "precision": [[60.0], [50.0]], "candidates": [40.0, 5.0]}
    rows = ROWS | {
        "bibtex/bp-speed/leml": ROWS["bibtex/bp-speed/leml"] | spent | {"captured": 0.9},
        "bibtex/full/leml": ROWS["bibtex/full/leml"] | {"train_cpu_seconds": 3.5},
        "bibtex/tune/leml": {"folds": [fold], "lams": [0.1, 1.0], "tune_cpu_seconds": 7.0},
    }
    told, found, why = verdict(made_results(rows), "Shorter training")
    assert (told, found) == ("LEML: 3.00 of 3.50 CPU s", "holds")
    assert "took 7 CPU s" in why
    assert verdict(made_results(rows), "Recall of label selection")[:2] == ("LEML: R@k loses at most 2.00", "holds")
    assert verdict(made_results(rows), "The role of lambda")[1:] == (
        "partly",
        "it trades precision for speed; the smallest lambda tried is the most precise here",
    )
    better = {
        "bibtex/tune/leml": rows["bibtex/tune/leml"]
        | {
            "folds": [fold | {"precision": [[60.0], [61.0], [50.0]], "candidates": [40.0, 9.0, 5.0]}],
            "lams": [0.1, 0.5, 1.0],
        }
    }
    assert verdict(made_results(rows | better), "The role of lambda")[1] == "holds"
    gains = rows | {"bibtex/bp-speed/leml": rows["bibtex/bp-speed/leml"] | {"R@1": 99.0, "R@3": 99.0, "R@5": 99.0}}
    assert "R@k gains at least" in verdict(made_results(gains), "Recall of label selection")[0]
    none = rows | {"bibtex/bp-speed/leml": rows["bibtex/bp-speed/leml"] | {"feasible": False}}
    for claim in ("Recall of label selection", "Shorter training"):
        assert "LEML (none feasible, the least loss): " in verdict(made_results(none), claim)[0]
    rows["bibtex/full/leml"] = rows["bibtex/full/leml"] | {"train_cpu_seconds": 2.9, "R@1": 90.0}
    assert verdict(made_results(rows), "Shorter training")[1] == "does not hold"
    assert verdict(made_results(rows), "Recall of label selection")[1] == "does not hold"


def test_verdicts_on_our_default():
    rows = {
        "bibtex/full/dismec": system_row((62.0, 38.0, 28.0), train_cpu_seconds=9.0),
        "bibtex/bp-default": system_row((62.0, 38.0, 28.0), train_cpu_seconds=4.0, speedup_paper=12.0, candidates=13.0),
    }
    table = verdicts.table_verdicts(made_results(rows))[2]
    assert [row[4].value for row in table.rows] == ["holds"] * 3
    rows["bibtex/bp-default"] = rows["bibtex/bp-default"] | {
        "train_cpu_seconds": 10.0,
        "speedup_paper": 2.0,
        "R@5": 1.0,
    }
    table = verdicts.table_verdicts(made_results(rows))[2]
    assert [row[4].value for row in table.rows] == ["partly", "does not hold", "does not hold"]
