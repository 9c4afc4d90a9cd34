"""The page of a pipeline: tables of concepts, cards of features, and nothing from elsewhere."""

import re
from html.parser import HTMLParser

import pytest

from tests.reports.pipeline_runs import CARD, CASES, page, write_pipeline
from unbraid.reports.feature_pages import card, lit, pages, title
from unbraid.reports.histograms import HIGH, WIDE, histogram
from unbraid.reports.matching_tables import concepts, rules
from unbraid.reports.page import write_report
from unbraid.reports.run_results import RunResults, read_results

VOID = {"meta", "img", "rect", "line", "br"}


class Balance(HTMLParser):
    """Whether every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_pipeline(tmp_path_factory.mktemp("lines")))


@pytest.fixture(scope="module")
def written(results: RunResults) -> str:
    path = write_report([results.run], results.run.path / "report.html")
    return path.read_text(encoding="utf-8")


def test_the_sections_of_a_pipeline_come_in_order(written):
    headings = re.findall(r"<h2>(.*?)</h2>", written)
    assert headings == [
        "What was run",
        "How well planted factors are recovered",
        "At equal accuracy",
        "Concept–feature matching",
        "Disentanglement",
        "Feature cards",
        "Training",
        "All scores",
        "Differences from l1",
    ]
    assert "Accuracy of the models: 0.800 [0.790, 0.810] (chance 0.590)." in written
    assert "MMCS" not in written


def test_the_page_is_whole_and_asks_nothing_of_the_network(written):
    balance = Balance()
    balance.feed(written)
    assert balance.open == []
    assert "<script" not in written
    assert not re.search(r'(?:src|href)="(?!data:|#)', written)


def test_several_pipelines_are_compared_by_phi(tmp_path, results):
    other = write_pipeline(tmp_path, "other", cases={"l1": CASES["l1"]}, seeds=[0])
    described = write_report([results.run, other], tmp_path / "both.html").read_text(encoding="utf-8")
    overview = described.partition("The runs and their best settings")[2].partition("</table>")[0]
    assert ">φ</th>" in overview
    assert "φ, chance to probe" in overview
    assert "topk" in overview
    assert "0.600" in overview


def test_every_concept_is_listed_with_its_verdict_and_features(results):
    listed = concepts(results.settings[0], CARD["concepts"])
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r'<tr><th scope="row">.*?</tr>', listed)]
    assert [row.strip("|").split("||") for row in rows] == [
        ["person = mary", "recovered", "0.930", "0.900", "12.5&nbsp;%", "17"],
        ["person = john", "missed", "0.210", "0.900", "12.5&nbsp;%", "nearest: 4"],
        ["place of mary = garden", "unjudged", "–", "0.900", "12.5&nbsp;%", "–"],
    ]
    assert "<details>" not in listed
    assert "<details>" in concepts(results.settings[0], CARD["concepts"] * 5)


def test_many_features_of_a_concept_are_counted(results):
    one = {**CARD["concepts"][0], "features": list(range(9))}
    assert "0, 1, 2, 3, 4, 5, and 3 more" in concepts(results.settings[0], [one])


def test_the_rules_are_given_one_sentence_each():
    described = rules()
    assert described.count('<th scope="row">') == 11
    assert "A concept is" in described
    assert "A learned feature is" in described


def test_a_card_is_titled_by_the_concepts_the_feature_matches():
    assert title(page(17, "match", ["person = mary"])) == "Feature 17: person = mary (match, φ\N{NO-BREAK SPACE}.93)"
    mixed = page(3, "mixture", ["place = garden", "place = office"], 1.0)
    assert title(mixed) == "Feature 3: place = garden or place = office (mixture, φ\N{NO-BREAK SPACE}1.00)"
    assert title(page(4, "spurious", [])) == "Feature 4: no concept (spurious)"
    described = card(page(17, "match", ["person = mary"]))
    assert "Fires at 12.5&nbsp;% of tokens" in described
    assert "18: person = mary" in described
    assert "−0.250" in described


def test_words_are_lit_by_their_values_and_the_strongest_is_marked():
    """Opacity is 0.55 at the strongest and in proportion below; what does not fire is not lit; negative is blue."""
    described = lit(["a", "<b>", "c", "d"], [0.0, 2.0, -1.0, 0.001])
    assert described == (
        'a <span class="strongest" style="background: rgba(230, 159, 0, 0.55)" title="2">&lt;b&gt;</span> '
        '<span style="background: rgba(86, 180, 233, 0.28)" title="−1">c</span> '
        '<span style="background: rgba(230, 159, 0, 0.04)" title="0.001">d</span>'
    )
    assert lit(["a", "b"], [0.0, 0.0]) == "a b"


def test_cards_are_of_the_first_two_settings_and_the_second_is_folded(results):
    section = pages(results)
    assert section.figures == []
    assert section.numbers.count('<article class="card">') == 2 * len(CARD["pages"])
    assert section.numbers.count("<details>") == 1
    assert "Features of topk, first replicate" in section.numbers
    assert "kmeans" not in section.numbers


def test_a_pipeline_without_kept_features_has_no_cards(results):
    bare = RunResults(**{**vars(results), "features": []})
    assert pages(bare).numbers == ""
    assert results.card(results.settings[0]) == CARD


def test_bars_of_a_histogram_are_as_high_as_their_counts():
    drawn = histogram([8, 0, 4], [0.0, 1.0, 2.0, 3.0], 1.5)
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"/>', drawn)
    assert [(float(x), float(y), float(height)) for x, y, height in bars] == [
        (0, 0, HIGH),
        (pytest.approx(2 * WIDE / 3, abs=0.1), HIGH / 2, HIGH / 2),
    ]
    assert f'<line x1="{WIDE / 2:.1f}"' in drawn
    assert "Histogram of 12 values from 0 to 3" in drawn
    assert "<line" not in histogram([1], [0.0, 1.0], 5.0)
    assert histogram([], []) == ""
