"""Figures of models: numbers as they were given, drawn by Vega-Lite."""

from dataclasses import asdict

import pandas as pd
import vl_convert

from unbraid.cli.profile import profiles_as_json
from unbraid.figures.models import gauge_profile
from unbraid.models.profile import StepProfile


def test_profile_reads_the_rows_of_the_command():
    fields = {"width": 20, "heads": "4x0e", "parameters": 100, "milliseconds": 1.5, "mebibytes": 6.7}
    profiles = [StepProfile(model="plain", **fields), StepProfile(model="gauge", **{**fields, "milliseconds": 3.0})]
    assert asdict(profiles[0])["milliseconds"] == 1.5
    figure = gauge_profile(pd.DataFrame(profiles_as_json(profiles, 256, 8)["profiles"]))
    rows = [row for data in figure.spec["datasets"].values() for row in data]
    assert sorted((row["model"], row["value"]) for row in rows) == [
        *(("gauge", 3.0), ("gauge", 6.7)),
        *(("plain", 1.5), ("plain", 6.7)),
    ]
    assert vl_convert.vegalite_to_svg(figure.spec).startswith("<svg")
