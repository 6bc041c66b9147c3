import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_parts import run as cli_run
from experiment_parts import Tuner, write_folder
from scipy import sparse

import blockxmc.training.dataset
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.paper.experiments import EXPERIMENTS, Settings, cells, freshness, run, systems
from blockxmc.paper.experiments.cells import Bench, Cell
from blockxmc.paper.experiments.freshness import check_pages
from blockxmc.paper.experiments.runner import APART
from blockxmc.paper.experiments.store import Store
from blockxmc.tuning import notebook

QUICK = Settings(bases=("dismec", "leml"), folds=2, rank=8, trees=2, threads=1, seeds=1)


@pytest.fixture
def tuner(monkeypatch):
    return Tuner().install(monkeypatch)


@pytest.fixture
def trained(monkeypatch):
    """Names of the estimators trained through the pipeline."""
    names = []
    fit = blockxmc.training.dataset.fit_dataset

    def counting(estimator, dataset):
        names.append(type(estimator).__name__)
        return fit(estimator, dataset)

    monkeypatch.setattr(blockxmc.training.dataset, "fit_dataset", counting)
    return names


def test_all_trains_every_model_once_and_a_second_run_trains_none(tmp_path, tuner, trained):
    folder = write_folder(tmp_path)
    results = run("all", [folder], tmp_path / "out", QUICK)
    assert not [cell for cell, content in results.contents.items() if "error" in content]
    both = [(base, letter) for base in ("DiSMEC", "LEML") for letter in (False, True)]
    assert sorted(tuner.tuned) == both
    assert sorted(tuner.fitted) == sorted(
        (base, how, letter, 0) for base, letter in both for how in ("accuracy", "speed")
    )
    others = ["BlockwiseClassifier", "FastXML", "LPSR", "LabelFilters"]
    assert sorted(trained) == sorted([*["DiSMEC", "LEML", "CBMLC", "CBMLC"] * 2, *others])
    for name, experiment in EXPERIMENTS.items():
        if name in APART:
            assert not (tmp_path / "out" / f"{name}.json").exists()
            continue
        assert (tmp_path / "out" / f"{name}.json").exists()
        assert (tmp_path / "out" / f"{name}.md").exists()
        for table in experiment.tables(results):
            assert (tmp_path / "out" / f"{table.name}.csv").exists()
        for figure in experiment.figures(results):
            for kind in ("png", "svg", "csv"):
                assert (tmp_path / "out" / f"{figure.name}.{kind}").stat().st_size > 0
    report = (tmp_path / "out" / "report.md").read_text()
    for part in ("None of these data sets is among the paper's five", "## R@k", "![", "cells, computed in"):
        assert part in report
    made = json.loads((tmp_path / "out" / "table-recall.json").read_text())
    assert made["made"]["cores"] >= 1
    assert made["settings"]["seed"] == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").iterdir() if path.is_file()}
    trained.clear(), tuner.tuned.clear(), tuner.fitted.clear()
    again = run("all", [folder], tmp_path / "out", QUICK)
    assert (trained, tuner.tuned, tuner.fitted) == ([], [], [])
    assert again.contents == results.contents
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_every_system_is_trained_as_it_comes(tmp_path, tuner, trained):
    results = run("table-systems", [write_folder(tmp_path)], tmp_path / "out", QUICK)
    assert not [cell for cell, content in results.contents.items() if "error" in content]
    bases = ["DiSMEC", "LEML", "NaiveBayes", "PDSparse", "PPDSparse"]
    assert (tuner.tuned, tuner.fitted) == ([], [])
    others = ["BlockwiseClassifier", *["BlockwiseClassifier"] * 5, "FastXML", "LPSR", "LabelFilters"]
    assert sorted(trained) == sorted([*bases, *["CBMLC"] * 5, *others])


def test_published_systems_are_trained_as_others_ran_them(tmp_path, trained):
    results = run("table-published", [write_folder(tmp_path, "bibtex")], tmp_path / "out", QUICK)
    assert not [cell for cell, content in results.contents.items() if "error" in content]
    as_they_come = ["DiSMEC", "FastXML", "LEML", "NaiveBayes", "PDSparse"]
    assert sorted(trained) == sorted([*as_they_come, "DiSMEC", "FastXML", "LEML", "LPSR", "LPSR", "PDSparse"])


def test_a_stopped_run_goes_on_where_it_was(tmp_path, tuner, trained, monkeypatch):
    folder = write_folder(tmp_path)

    def interrupt(bench, cell):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(cells.MAKERS, "bp-speed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run("table-recall", [folder], tmp_path / "out", QUICK)
    assert sorted(trained) == ["DiSMEC", "LEML"]
    assert not list((tmp_path / "out").glob("**/*.part"))
    trained.clear()
    results = run("table-recall", [folder], tmp_path / "out", QUICK)
    assert trained == []
    assert len(tuner.tuned) == 2
    assert results.contents["tiny/bp-speed/leml"]["row"]["P@1"] > 0


def test_equal_lambdas_are_one_model(tmp_path, monkeypatch):
    tuner = Tuner(speed=0.1, accuracy=0.1).install(monkeypatch)
    settings = Settings(bases=("dismec",), folds=2, threads=1, seeds=1)
    results = run("table-router", [write_folder(tmp_path)], tmp_path / "out", settings)
    assert tuner.fitted == [("DiSMEC", "accuracy", False, 0)]
    assert results.contents["tiny/bp-speed/dismec"]["row"]["same_as"] == "tiny/bp-accuracy/dismec"


def test_a_failing_system_is_recorded_shown_and_tried_again(tmp_path, tuner, monkeypatch):
    folder, settings = write_folder(tmp_path), Settings(bases=("dismec",), folds=2, threads=1)

    def broken(bench, cell):
        raise ValueError("two\nlines")

    with monkeypatch.context() as patch:
        patch.setitem(cells.MAKERS, "tune", broken)
        results = run("table-recall", [folder], tmp_path / "out", settings)
    assert results.contents["tiny/tune/dismec"]["error"] == "ValueError: two lines"
    assert results.contents["tiny/bp-speed/dismec"]["error"] == "tiny/tune/dismec failed: ValueError: two lines"
    text = (tmp_path / "out" / "table-recall.md").read_text()
    assert "| BP DiSMEC (speed-driven) | failed: tiny/tune/dismec failed: ValueError: two lines | – | – |" in text
    assert "failed: tiny/tune/dismec" in (tmp_path / "out" / "report.html").read_text()
    again = run("table-recall", [folder], tmp_path / "out", settings)
    assert "row" in again.contents["tiny/bp-speed/dismec"]


def test_another_setting_is_another_cell_and_a_subset_is_marked(tmp_path, trained):
    folder = write_folder(tmp_path)
    settings = Settings(bases=("dismec",), threads=1)
    bench = cells.Bench({"tiny": folder}, settings, Store(tmp_path / "cells"))
    whole = bench.row(cells.Cell("tiny", "full", "dismec"))
    some = Settings(bases=("dismec",), threads=1, max_test_rows=7)
    bench = cells.Bench({"tiny": folder}, some, Store(tmp_path / "cells"))
    part = bench.row(cells.Cell("tiny", "full", "dismec"))
    assert (whole["rows"], part["rows"], len(part["hits"]["5"])) == (60, 7, 7)
    assert bench.row(cells.Cell("tiny", "data"))["scored_rows"] == 7
    assert trained == ["DiSMEC", "DiSMEC"]
    assert len(list((tmp_path / "cells").glob("tiny--full--dismec--*.json"))) == 2


def test_row_agrees_with_itself(tmp_path, tuner):
    settings = Settings(bases=("dismec",), folds=2, threads=1)
    bench = cells.Bench({"tiny": write_folder(tmp_path)}, settings, Store(tmp_path / "cells"))
    row = bench.row(cells.Cell("tiny", "bp-speed", "dismec"))
    for k in (1, 3, 5):
        assert sum(map(int, row["hits"][str(k)])) / (60 * k) * 100 == pytest.approx(row[f"P@{k}"])
    assert sum(row["deciles"]["precision"]) * 100 == pytest.approx(row["P@5"])
    parts = row["partition_seconds"] + row["router_seconds"] + row["blocks_seconds"]
    assert 0 < parts <= row["train_seconds"]
    assert row["blocks_seconds"] > 0
    assert row["router_predict_seconds"] > 0
    assert row["model_mb"] > 0
    assert row["blocks"] == 2


def test_changed_data_are_other_cells(tmp_path, trained):
    settings = Settings(bases=("dismec",), threads=1)
    folder = write_folder(tmp_path)
    cell = cells.Cell("tiny", "full", "dismec")
    cells.Bench({"tiny": folder}, settings, Store(tmp_path / "cells")).row(cell)
    (folder / "train.txt").touch()  # read anew, found equal: nothing is trained
    cells.Bench({"tiny": folder}, settings, Store(tmp_path / "cells")).row(cell)
    assert trained == ["DiSMEC"]
    lines = (folder / "train.txt").read_text().splitlines()
    lines[1] = lines[2]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    cells.Bench({"tiny": folder}, settings, Store(tmp_path / "cells")).row(cell)
    assert trained == ["DiSMEC", "DiSMEC"]


def test_damaged_cell_files_are_computed_again(tmp_path, trained):
    bench = cells.Bench(
        {"tiny": write_folder(tmp_path)}, Settings(bases=("dismec",), threads=1), Store(tmp_path / "cells")
    )
    cell = cells.Cell("tiny", "full", "dismec")
    bench.row(cell)
    (path,) = (tmp_path / "cells").glob("tiny--full--*.json")
    path.write_text(path.read_text()[:100])
    again = cells.Bench(bench.folders, bench.settings, bench.store)
    assert again.row(cell)["P@1"] > 0
    assert len(trained) == 2


def test_names_and_folders_are_checked_before_anything_runs(tmp_path):
    folder = write_folder(tmp_path)
    (tmp_path / "more").mkdir()
    twin = write_folder(tmp_path / "more")
    for arguments, message in (
        (("table-nothing", [folder]), "unknown experiment 'table-nothing'"),
        (("table-data", [tmp_path / "none"]), "not a folder"),
        (("table-data", [folder, twin]), "another folder is called tiny"),
        (("table-data", [tmp_path / "more"]), "more"),
    ):
        with pytest.raises(BlockXMCError, match=message):
            run(*arguments, tmp_path / "out", QUICK)
    with pytest.raises(BlockXMCError, match="--bases must name some of"):
        run("table-data", [folder], tmp_path / "out", Settings(bases=("svm",)))


def test_rows_are_of_unit_length_but_as_given_for_naive_bayes(tmp_path, monkeypatch):
    folder = write_folder(tmp_path)
    train = folder / "train.txt"
    head, *lines = train.read_text().splitlines()
    train.write_text("\n".join([head, lines[0].partition(" ")[0] + " 0:3 1:4", *lines[1:]]) + "\n")
    seen = {}

    def first_row(estimator, dataset):
        seen[type(estimator).__name__] = dataset.X[[0]].data.tolist()
        raise ValueError

    monkeypatch.setattr(blockxmc.training.dataset, "fit_dataset", first_row)
    for settings, expected in ((Settings(threads=1), [0.6, 0.8]), (Settings(threads=1, normalise=False), [3.0, 4.0])):
        bench = cells.Bench({"tiny": folder}, settings, Store(tmp_path / "cells"))
        for base in ("dismec", "naive-bayes"):
            assert "error" in bench.content(cells.Cell("tiny", "full", base))
        assert seen["DiSMEC"] == pytest.approx(expected)
        assert seen["NaiveBayes"] == [3.0, 4.0]


def test_rivals_are_counted_on_the_rows_they_score(tmp_path):
    bench = cells.Bench({"tiny": write_folder(tmp_path)}, QUICK, Store(tmp_path / "cells"))
    filters, forest = (bench.row(cells.Cell("tiny", *names)) for names in (("lf", "dismec"), ("fastxml",)))
    assert filters["products"] == pytest.approx(5 + filters["candidates"])  # five filters by default
    assert filters["speedup"] == pytest.approx(30 / filters["products"])
    assert 0 < forest["products"] < 30
    assert forest["speedup"] == pytest.approx(30 / forest["products"])


def test_with_the_real_tuner(tmp_path):
    settings = Settings(bases=("dismec",), folds=2, blocks=2, tolerance=20, threads=1)
    results = run("figure-lambda", [write_folder(tmp_path)], tmp_path / "out", settings)
    row = results.contents["tiny/tune/dismec"]["row"]
    assert len(row["folds"]) == 2
    bench = cells.Bench({"tiny": tmp_path / "tiny"}, settings, Store(tmp_path / "out" / "cells"))
    model = bench.row(cells.Cell("tiny", "bp-speed", "dismec"))
    assert row["speed_driven"] is not None
    assert (model["lam"], model["feasible"]) == (row["speed_driven"]["lam"], True)
    assert model["P@1"] > 0
    assert (tmp_path / "out" / "figure-lambda.svg").exists()


def test_a_run_that_is_stopped_again_and_again_has_the_tables_of_one_in_one_go(tmp_path, monkeypatch):
    folder = write_folder(tmp_path)
    settings = Settings(bases=("dismec",), folds=2, threads=1, seeds=1, skip=("*letter*", "*/fastxml", "*/lf/*"))
    run("table-precision", [folder], tmp_path / "one", settings)
    real = systems.tune
    for _ in range(100):

        def stopping(train, base, row, settings, work, stop_at):
            begun = []

            class Clock:
                @staticmethod
                def time():  # a few trials, then the time is over
                    begun.append(1)
                    return 0.0 if len(begun) <= 4 else 10.0

            with monkeypatch.context() as patch:
                patch.setattr(notebook, "time", Clock)
                return real(train, base, row, settings, work, 5.0)

        with monkeypatch.context() as patch:
            patch.setattr(systems, "tune", stopping)
            results = run("table-precision", [folder], tmp_path / "two", settings)
        if "row" in results.contents["tiny/tune/dismec"]:
            break
    for table in ("table-choices", "table-settings"):
        assert (tmp_path / "one" / f"{table}.csv").read_text() == (tmp_path / "two" / f"{table}.csv").read_text()


def test_the_command_of_a_row_trains_it_again(tmp_path, capsys):
    folder = write_folder(tmp_path)
    settings = Settings(bases=("naive-bayes",), folds=2, blocks=2, tolerance=30, threads=1, seeds=1, normalise=False)
    results = run("table-precision", [folder], tmp_path / "out", settings)
    settings_table = next(t for t in EXPERIMENTS["table-precision"].tables(results) if t.name == "table-settings")
    for row in settings_table.rows:
        name, command = row[1].value, row[-1].value
        if "Naive Bayes" not in name:
            continue
        words = shlex.split(command.replace("tiny/", f"{folder}/").replace("MODEL", str(tmp_path / "model")))
        assert words[0] == "blockxmc"
        code, _, err = cli_run(capsys, *words[1:], "--threads", 1)
        assert code == 0, err
        code, out, _ = cli_run(capsys, "evaluate", tmp_path / "model", folder / "test.txt", "--json")
        cell = results.contents[row[-2].cell]["row"]
        assert json.loads(out)["P@5"] == pytest.approx(cell["P@5"])
        shutil.rmtree(tmp_path / "model")


def test_what_is_infeasible_is_called_none_and_the_least_loss_is_shown(tmp_path, monkeypatch):
    tuner = Tuner(speed=None).install(monkeypatch)
    settings = Settings(bases=("dismec",), folds=2, threads=1, seeds=2)
    results = run("all", [write_folder(tmp_path)], tmp_path / "out", settings)
    # The least loss has the same lambda here; each choice is trained by every seed.
    assert sorted(tuner.fitted) == [("DiSMEC", "accuracy", letter, seed) for letter in (False, True) for seed in (0, 1)]
    assert results.contents["tiny/bp-speed/dismec"]["row"]["feasible"] is False
    table = (tmp_path / "out" / "table-precision.md").read_text()
    assert "| BP DiSMEC (speed-driven: none; least loss) |" in table
    assert "BP DiSMEC (speed-driven) |" not in table
    report = (tmp_path / "out" / "report.md").read_text()
    assert "no lambda within the tolerance in all folds; the least loss loses" in report
    assert report.index("## The paper's claims") < report.index("## How it was made")
    assert "tiny | DiSMEC" not in (tmp_path / "out" / "figure-alps.md").read_text()


def test_cells_of_other_code_are_not_reused_and_their_pages_are_stale(tmp_path, trained, monkeypatch):
    folder, out, settings = write_folder(tmp_path), tmp_path / "out", Settings(bases=("dismec",), threads=1)
    run("table-data", [folder], out, settings)
    assert check_pages(out) == {"table-data": []}
    bench = cells.Bench({"tiny": folder}, settings, Store(out / "cells"))
    bench.row(cells.Cell("tiny", "full", "dismec"))
    assert trained == ["DiSMEC"]
    for module in (cells, freshness):
        monkeypatch.setattr(module, "code_digest", lambda kind: f"other code of {kind}")
    assert check_pages(out) == {"table-data": ["tiny/data"]}
    bench = cells.Bench({"tiny": folder}, settings, Store(out / "cells"))
    bench.row(cells.Cell("tiny", "full", "dismec"))
    assert trained == ["DiSMEC"] * 2
    with pytest.raises(BlockXMCError, match="no page of an experiment"):
        check_pages(folder)


def test_processes_side_by_side_make_the_same_cells(tmp_path):
    folder, settings = write_folder(tmp_path), Settings(bases=("naive-bayes",), folds=2, blocks=2, threads=1)
    alone = run("table-recall", [folder], tmp_path / "one", settings, draw=False)
    assert not (tmp_path / "one" / "report.md").exists()
    side = run("table-recall", [folder], tmp_path / "two", settings, jobs=2)
    assert list(side.contents) == list(alone.contents)
    for cell, content in alone.contents.items():
        for key, value in content["row"].items():
            if "seconds" not in key and "_us" not in key and key != "explain":
                assert side.contents[cell]["row"][key] == value, (cell, key)


def test_a_sample_of_the_training_rows_is_stated_and_cells_can_be_left_out(tmp_path, trained):
    folder = write_folder(tmp_path)
    settings = Settings(bases=("dismec",), threads=1, max_train_rows=(("tiny", 90),), skip=("tiny/*/dismec",))
    results = run("table-recall", [folder], tmp_path / "out", settings)
    assert trained == []
    assert "trained on a random 90 of 180 rows" in (tmp_path / "out" / "report.md").read_text()
    assert "| DiSMEC | left out |" in (tmp_path / "out" / "table-recall.md").read_text()
    assert results.contents["tiny/data"]["row"]["train_rows"] == 90


def test_labels_that_the_sample_does_not_have_are_left_out(tmp_path):
    folder = write_folder(tmp_path)
    bench = Bench({"tiny": folder}, Settings(max_train_rows=(("tiny", 8),)), Store(tmp_path / "cells"))
    whole = Bench({"tiny": folder}, Settings(), Store(tmp_path / "cells"))
    cell = Cell("tiny", "full", "dismec")
    (train, test), (_, all_test) = bench.datasets(cell), whole.datasets(cell)
    assert train.n_labels == test.n_labels < all_test.n_labels
    assert np.diff(sparse.csc_array(train.Y).indptr).min() >= 1
    assert test.unseen_labels == all_test.Y.nnz - test.Y.nnz > 0
    # A folder that holds the sample alone has the same data.
    script = Path(__file__).parents[2] / "bench" / "paper" / "sampled_folder.py"
    command = [sys.executable, str(script), str(folder), str(tmp_path / "s" / "tiny")]
    subprocess.run([*command, "--train", "8", "--test", "1000"], check=True)
    small = Bench({"tiny": tmp_path / "s" / "tiny"}, bench.settings, Store(tmp_path / "cells"))
    assert [part.digest for part in small.datasets(cell)] == [train.digest, test.digest]


def test_time_left_counts_cells_by_their_weight(tmp_path, tuner):
    said = []
    reporter = Reporter()
    reporter.say = said.append
    run("table-recall", [write_folder(tmp_path)], tmp_path / "out", QUICK, reporter)
    assert said[-1].endswith("; about 0 minutes left")
    assert all("minutes left" in line for line in said if "/full/" in line)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_there_was_no_time_for_is_not_computed_and_said_so(tmp_path, trained, jobs):
    folder, settings = write_folder(tmp_path), Settings(bases=("naive-bayes",), folds=2, blocks=2, threads=1)
    results = run("table-recall", [folder], tmp_path / "out", settings, jobs=jobs, seconds=0)
    assert trained == []
    assert {cell: "row" in content for cell, content in results.contents.items() if "row" in content} == {
        "tiny/data": True
    }
    assert "| Naive Bayes | not computed |" in (tmp_path / "out" / "table-recall.md").read_text()
    whole = run("table-recall", [folder], tmp_path / "out", settings)
    drawn = run("table-recall", [folder], tmp_path / "out", settings, jobs=jobs, seconds=0)
    assert drawn.contents == whole.contents
    assert drawn.made == whole.made


def test_a_tuning_cell_that_ran_out_of_time_goes_on_later(tmp_path, monkeypatch):
    folder, settings = write_folder(tmp_path), Settings(bases=("naive-bayes",), folds=2, blocks=2, threads=1)
    real, begun = cells.systems.tune, []

    def late(*given):
        begun.append(given[-1])
        return real(*given[:-1], 0.0)  # long ago

    with monkeypatch.context() as patch:
        patch.setattr(cells.systems, "tune", late)
        first = run("table-recall", [folder], tmp_path / "out", settings, seconds=600)
    assert begun
    assert first.contents["tiny/tune/naive-bayes"]["error"] == "not computed"
    assert first.contents["tiny/bp-speed/naive-bayes"]["error"] == "not computed"
    assert "row" in first.contents["tiny/full/naive-bayes"]
    later = run("table-recall", [folder], tmp_path / "out", settings)
    assert "row" in later.contents["tiny/bp-speed/naive-bayes"]
