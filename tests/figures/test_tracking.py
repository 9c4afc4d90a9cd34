"""Figures of tracking: the counts drawn are those that the tracker wrote."""

import numpy as np
import pytest

from tests.figures.test_dictionaries import rows, section
from unbraid.storage.files import read_arrays


@pytest.mark.parametrize("quantity", ["learned", "unlearned", "unlearned_same_entry", "moved"])
def test_counts_are_means_over_replicates_of_what_was_tracked(small_run, quantity):
    results = small_run("superposition")
    figure = next(one for one in section(results, "tracking").figures if one.name == f"tracking-{quantity}")
    held = {(row["label"], row["step"]): row["value"] for row in rows(figure)}
    cut = float(figure.title.rpartition("≥ ")[2].rstrip(")"))
    for index in results.drawn:
        members = results.members.query("setting == @index")
        files = [read_arrays(results.run.stack(stack) / "tracking.safetensors") for stack in members["stack"]]
        place = int(np.abs(files[0]["thresholds"] - cut).argmin())
        values = [tables[quantity][place, member] for tables, member in zip(files, members["member"], strict=True)]
        for step, value in zip(files[0]["steps"], np.mean(values, axis=0), strict=True):
            if np.isfinite(value):
                assert held[results.labels[index], step] == pytest.approx(value, rel=1e-3)


def test_average_unlearned_is_the_mean_over_checks_and_replicates(small_run):
    results = small_run("superposition")
    figure = next(one for one in section(results, "tracking").figures if one.name == "tracking-average-unlearned")
    held = {(row["label"], row["threshold"]): row["value"] for row in rows(figure)}
    index = results.drawn[0]
    members = results.members.query("setting == @index")
    files = [read_arrays(results.run.stack(stack) / "tracking.safetensors") for stack in members["stack"]]
    for place, threshold in enumerate(files[0]["thresholds"]):
        values = [tables["unlearned"][place, member] for tables, member in zip(files, members["member"], strict=True)]
        assert held[results.labels[index], threshold] == pytest.approx(np.nanmean(values), rel=1e-3)
