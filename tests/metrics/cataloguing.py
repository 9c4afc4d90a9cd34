"""What tests of every kind of run hold: each metric it wrote has a record in the catalog."""

from unbraid.runs import Run

from unbraid.metrics.catalog import find


def check_catalogued(run: Run) -> None:
    written = {name for setting in run.scores()["settings"] for name in setting["metrics"]}
    assert {name for name in written if find(name) is None} == set()
