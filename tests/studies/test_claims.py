"""Claims as data: every entry loads, its study ships and can answer it at each scale; a wrong entry is refused."""

import tomllib
from pathlib import Path

import pytest

from unbraid.errors import UserError
from unbraid.metrics.catalog import METRICS, RECORDS, parts
from unbraid.pipeline.expand import expand
from unbraid.storage.runs import Run
from unbraid.studies.claims import FOLDER, SOURCES, Claim, load_claims
from unbraid.studies.ledger import CLAIMS
from unbraid.studies.measures import MEASURES, SMALLEST_RATIO, Difference
from unbraid.studies.plans import SCALES, plan_study, study_config
from unbraid.studies.results import matches
from unbraid.studies.shipped import shipped
from unbraid.studies.verdicts import RULES, Within

ENTRY = """
[[claims]]
id = "gauge/flatter"
statement = "It is flatter."
quote = "Flatter still."
published = "no figure"
study = "gauge/irreps"
overrides.small = ["training.steps=3"]

[[claims.parts]]
what = "sharpness, a or b minus c"
measure = "difference"
metric = "sharpness"
of = { case = ["a", "b"], ratio = 1 }
minus = { case = "c" }
rule = "within"
margin = 0.05
"""


@pytest.fixture
def load(tmp_path: Path):
    """Loads this text as the claims of `gauge`, where the other source studies have none."""
    for source in SOURCES:
        (tmp_path / f"{source.replace('-', '_')}.toml").touch()

    def load_text(text: str) -> dict[str, Claim]:
        (tmp_path / "gauge.toml").write_text(text)
        return load_claims(tmp_path)

    return load_text


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_study_can_answer(claim: Claim, scale: str, tmp_path: Path, pretend_to_capture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretend_to_capture(study_config(claim, scale)[0])
    study = plan_study([claim], scale, tmp_path)
    assert study.run == Run(tmp_path / study.run.name)
    members = expand(study.config, "test").members
    for where in claim.selections():
        selected = [member for member in members if matches(member.setting, study.config, where)]
        assert selected, where
        assert len({member.experiment.replicate() for member in selected}) >= claim.replicates


def test_every_claim_is_loaded_by_its_id_and_tested_by_a_study_that_ships():
    assert len(CLAIMS) == sum(path.read_text().count("[[claims]]") for path in FOLDER.glob("*.toml"))
    assert list(dict.fromkeys(claim.source for claim in CLAIMS.values())) == list(SOURCES)
    assert all(claim_id == claim.id and claim.study in shipped() for claim_id, claim in CLAIMS.items())


def test_every_measure_and_rule_is_named_by_some_claim():
    parts = [part for claim in CLAIMS.values() for part in claim.parts]
    assert {type(part.measure) for part in parts} == set(MEASURES.values())
    assert {type(part.rule) for part in parts} == set(RULES.values())


def test_an_entry_becomes_its_records(load):
    [claim] = load(ENTRY).values()
    [part] = claim.parts
    assert (claim.source, claim.overrides) == ("gauge", {"small": ("training.steps=3",)})
    assert part.measure == Difference(metric="sharpness", of={"case": ("a", "b"), "ratio": 1}, minus={"case": "c"})
    assert part.rule == Within(margin=0.05)
    assert (claim.combine, claim.exploratory, claim.replicates) == ("all", "", 8)


def test_the_smallest_effect_is_the_parts_own_or_that_of_its_metric_or_measure(load):
    def smallest(written: str, instead: str) -> float:
        [claim] = load(ENTRY.replace(written, instead)).values()
        return claim.parts[0].smallest_effect

    assert smallest("", "") == METRICS["sharpness"].least_difference == 0.02
    assert smallest("margin = 0.05", "smallest = 0.3") == 0.3
    assert smallest('"difference"', '"relative"') == SMALLEST_RATIO


def test_every_metric_that_claims_use_says_why_its_smallest_effect_is_one():
    used = {parts(part.measure.metric)[0] for claim in CLAIMS.values() for part in claim.parts}
    written = tomllib.loads(RECORDS.read_text())
    reasons = {name: table.get("least_reason", "") for section in written.values() for name, table in section.items()}
    assert {name for name in used if not reasons[name]} == set()


def test_every_claim_has_a_sentence_of_its_source():
    assert [claim.id for claim in CLAIMS.values() if not claim.quote.strip()] == []


def test_a_quote_is_a_sentence_and_not_our_words():
    assert [claim.id for claim in CLAIMS.values() if claim.quote and claim.quote == claim.statement] == []


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        ('"difference"', '"diference"', "did you mean 'difference'"),
        ('rule = "within"', 'rule = "beyond"', "accepted: above, below, within"),
        ('measure = "difference"', "", "measure.kind is 'None'"),
        ("margin = 0.05", "margin = -1", "margin is -1"),
        ("margin = 0.05", "smallest = 0.0", "smallest is 0.0"),
        ('metric = "sharpness"', 'metric = "l0"', "the measure 'difference' of 'l0' has no smallest effect"),
        ('study = "gauge/irreps"', 'study = "gauge/irreps"\ncombine = "most"', "combine is 'most'"),
        ('minus = { case = "c" }', "", "'parts.0.measure.minus' is required"),
        ("minus =", "than =", "there is no setting 'parts.0.measure.than'"),
        ('what = "sharpness, a or b minus c"', "", "'parts.0.what' is required"),
        ("[[claims]]\n", "[[claim]]\n[[claims]]\n", "there is no table 'claim'"),
        ("published =", "printed =", "there is no setting 'printed'"),
        ('"gauge/flatter"', '"superposition/flatter"', "does not begin with 'gauge/'"),
        ('"gauge/flatter"', '"flatter"', "id is 'flatter'"),
    ],
)
def test_a_wrong_entry_is_refused(load, written: str, instead: str, message: str):
    with pytest.raises(UserError) as refused:
        load(ENTRY.replace(written, instead))
    assert message in str(refused.value)
    assert "gauge.toml" in str(refused.value)


def test_an_id_stands_once(load):
    with pytest.raises(UserError, match="the id 'gauge/flatter' is taken"):
        load(ENTRY + ENTRY)
