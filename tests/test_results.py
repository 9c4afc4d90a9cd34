"""A run as tables: every number is that of the run's files, with whose it is beside it."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.pipeline.running import create, finish
from unbraid.errors import UserError
from unbraid.results import TABLES, load_run
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json

CONFIG = """
title = "Small"
[world]
kind = "superposition"
dimensions = 8
n_features = 10
[world.firing]
kind = "hierarchy"
children = 4
[dictionary]
d_sae = 12
[training]
steps = 40
batch = 64
[evaluation]
samples = 512
[mechanisms.sparsity]
weight = 0.1
[checkpoints]
log_every = 10
[tracking]
checks = 4
[sweep]
"dictionary.d_sae" = [6, 12]
"mechanisms.sparsity.weight" = [0.05, 0.2]
seed = [0, 1, 2]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finish(create(tmp_path_factory.mktemp("runs"), "small", CONFIG))


@pytest.fixture(scope="module")
def results(run):
    return load_run(run.path)


def test_scores_and_summary_are_those_of_scores_json(run, results):
    cards = read_json(run.path / "scores.json")["settings"]
    assert results.labels == [card["label"] for card in cards]
    assert len(results.scores) == sum(len(score["members"]) for card in cards for score in card["metrics"].values())
    for index, card in enumerate(cards):
        row = results.of_metric("mmcs").set_index("setting").loc[index]
        expected = card["metrics"]["mmcs"]
        assert [row["value"], row["low"], row["high"]] == [expected["value"], *expected["interval"]]
        assert [row["chance"], row["ceiling"], row["n"]] == [expected["chance"], expected["ceiling"], 3]
        members = results.scores.query("setting == @index and metric == 'mmcs'")
        assert members["value"].tolist() == expected["members"]
        assert members["replicate"].tolist() == [member["replicate"] for member in card["members"]]


def test_swept_paths_are_columns_of_settings(results):
    assert results.settings["dictionary.d_sae"].tolist() == [6, 6, 12, 12]
    assert results.settings["mechanisms.sparsity.weight"].tolist() == [0.05, 0.2, 0.05, 0.2]
    assert results.settings["replicates"].tolist() == [3, 3, 3, 3]


def test_differences_name_both_sides(run, results):
    entries = read_json(run.path / "scores.json")["differences"]
    assert results.differences["value"].tolist() == [entry["value"] for entry in entries]
    assert set(results.differences["reference_label"]) == {results.labels[0]}


def test_curves_follow_the_members_through_the_stacks(run, results):
    for row in results.members.itertuples():
        lines = read_log(run.stack(row.stack) / "log.jsonl")
        own = results.curves.query("stack == @row.stack and member == @row.member")
        logged = own[own["quantity"] == "loss: sparsity"]
        assert logged["step"].tolist() == [line["step"] for line in lines]
        assert logged["value"].tolist() == [line["terms"]["sparsity"][row.member] for line in lines]
        assert set(own["setting"]) == {row.setting}
        assert own[own["quantity"] == "l0"]["value"].tolist() == [line["l0"][row.member] for line in lines]


def test_concepts_features_and_tracking_are_the_tables(run, results):
    for row in results.members.itertuples():
        tables = read_arrays(run.stack(row.stack) / "tables.safetensors")
        own = results.concepts.query("stack == @row.stack and member == @row.member")
        np.testing.assert_array_equal(own["best_cosine"], tables["best_cosine"][row.member])
        np.testing.assert_array_equal(own["frequency"], tables["probabilities"])
        assert own["name"].tolist()[:2] == ["concept 0", "concept 1"]
        features = results.features.query("stack == @row.stack and member == @row.member")
        np.testing.assert_array_equal(features["density"], tables["density"][row.member])
        tracked = read_arrays(run.stack(row.stack) / "tracking.safetensors")
        learned = results.tracking.query("stack == @row.stack and member == @row.member and quantity == 'learned'")
        last = learned[learned["step"] == tracked["steps"][-1]]["value"]
        assert last.tolist() == tracked["learned"][:, row.member, -1].tolist()
    assert set(results.concepts["fate"]) <= {"recovered", "split", "merged", "absorbed", "missed"}


def test_ranked_by_the_leading_metric(results):
    values = results.of_metric(results.leading).set_index("setting")["value"]
    assert [values[index] for index in results.ranked] == sorted(values, reverse=True)


def test_every_table_is_a_frame_that_can_be_written(results, tmp_path):
    for name in TABLES:
        table = getattr(results, name)
        assert isinstance(table, pd.DataFrame)
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    again = pd.read_csv(tmp_path / "summary.csv")
    np.testing.assert_allclose(again["value"], results.summary["value"])


def test_a_run_that_has_only_begun_has_empty_tables(tmp_path):
    run = create(tmp_path, "begun", CONFIG)
    results = load_run("begun", tmp_path)
    assert results.state == "killed"
    assert all(len(getattr(results, name)) == 0 for name in TABLES)
    with pytest.raises(UserError, match="accepted: a finished run"):
        results.check_finished()
    assert str(run.path) in repr(results.run)


def test_stacks_without_scores_still_have_curves(run, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    for name in ("scores.json", "checksums.json"):
        (copy / name).unlink()
    status = json.loads((copy / "status.json").read_text())
    assert status["state"] == "finished"
    with pytest.raises(UserError):
        load_run(copy)
