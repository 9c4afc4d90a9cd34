"""The page: what it shows is what was scored, and it needs nothing but itself."""

import base64
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from unbraid.errors import UserError
from unbraid.reports.page import write_report
from unbraid.storage.files import write_json

VOID = {"meta", "img", "br", "hr", "input"}


class Outline(HTMLParser):
    """Checks that tags balance, and gathers the images, the table rows and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(run, tmp_path: Path) -> Outline:
    return Outline(write_report([run], tmp_path / "page.html").read_text())


def test_the_page_is_whole_and_asks_nothing_of_the_network(drawn):
    page = drawn[1].read_text()
    outline = Outline(page)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {tag for tag, _ in outline.tags}
    without_figures = re.sub(r'"data:image/png;base64,[^"]*"', '""', page)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", without_figures)
    images = outline.attributes("img")
    assert len(images) == 13
    for image in images:
        assert (image["src"] or "").startswith("data:image/png;base64,iVBOR")
        assert len(image["alt"] or "") > 20
    assert any(meta.get("name") == "viewport" for meta in outline.attributes("meta"))


def test_figures_are_kept_in_the_run_and_equal_those_in_the_page(drawn):
    run, page = drawn
    images = Outline(page.read_text()).attributes("img")
    inside = {base64.b64decode((image["src"] or "").partition(",")[2]) for image in images}
    kept = {path.read_bytes() for path in (run.path / "figures").glob("*.png")}
    assert kept == inside
    expected = {
        "score-mmcs",
        "loss-reconstruction",
        "loss-sparsity",
        "curve-l0",
        "curve-mmcs",
        "recovery-1",
        "cosines-2",
    }
    assert expected | {"firing-rates"} <= {path.stem for path in (run.path / "figures").iterdir()}


def test_numbers_chance_ceiling_and_interval_are_those_of_the_scores(drawn):
    run, page = drawn
    rows = [row[1:] for row in Outline(page.read_text()).rows]
    digits = {"l0": ".2f", "dead": ".1f", "density": "#.3g", "reconstruction_error": "#.3g"}
    for setting in run.scores()["settings"]:
        for metric, score in setting["metrics"].items():
            form = digits.get(metric, ".3f")

            def write(value: float | None, form: str = form) -> str:
                return "–" if value is None else "0" if 0 < value < 1e-12 else format(value, form)

            bounds = f"[{write(score['interval'][0])}, {write(score['interval'][1])}]"
            assert [write(score["value"]), bounds, write(score["chance"]), write(score["ceiling"])] in rows, metric


def test_headline_names_the_best_setting_with_interval_chance_and_ceiling(drawn):
    text = Outline(drawn[1].read_text()).text
    assert "Best of 2 settings, weight 0.05: MMCS 0.820 [0.812, 0.829] (chance 0.189; ceiling 1.000)." in text
    assert "weight 0.15 minus weight 0.05: −0.024 [−0.030, −0.020] over 3 pairs (lower)." in text


def test_differences_show_pairs_and_verdict_and_never_a_bound_of_0_that_is_not(drawn):
    rows = Outline(drawn[1].read_text()).rows
    assert ["MMCS", "−0.024", "[−0.030, −0.020]", "3", "▼ lower"] in rows
    assert ["F1", "+0.031", "[+0.0002, +0.040]", "3", "▲ higher"] in rows
    assert ["L0", "+0.21", "[−0.10, +0.50]", "3", "○ undecided"] in rows


def test_one_setting_one_seed_has_no_intervals_and_says_so(undrawn, make_run, tmp_path):
    outline = read(make_run(weights=(0.1,), seeds=(0,)), tmp_path)
    assert ["weight 0.1", "0.812", "–", "0.189", "1.000"] in outline.rows
    assert "there are no intervals" in outline.text
    assert "Differences" not in outline.text


def test_text_from_outside_is_escaped(make_run, tmp_path):
    title = 'Beware <script>alert("1")</script> & <b>'
    run = make_run(title=title, name="$run_^ <i>", weights=(0.1,), seeds=(0,), label=lambda weight: f'<u>"{weight}$')
    page = write_report([run], tmp_path / "page.html").read_text()
    assert not {"script", "i", "u"} & {tag for tag, _ in Outline(page).tags}
    assert title in unescape(page)
    assert "&lt;u&gt;&quot;0.1$" in page
    assert "<script" not in page


def test_what_is_missing_is_a_dash(undrawn, make_run, tmp_path):
    run = make_run()
    scores = run.scores()
    for setting in scores["settings"]:
        setting["metrics"]["mmcs"] |= {"value": None, "interval": None, "members": [None, None, None]}
    for difference in scores["differences"]:
        difference |= {"value": None, "interval": None, "verdict": "undecided"}
    write_json(run.path / "scores.json", scores)
    outline = read(run, tmp_path)
    assert ["weight 0.05", "–", "–", "0.189", "1.000"] in outline.rows
    assert ["MMCS", "–", "–", "3", "○ undecided"] in outline.rows
    assert "No setting has a value of MMCS" in outline.text


def test_many_settings_are_all_in_the_table_and_few_scores_are_unfolded(undrawn, make_run, tmp_path):
    weights = tuple(0.01 * n for n in range(1, 13))
    outline = read(make_run(weights=weights, seeds=(0, 1), title=""), tmp_path)
    assert {f"weight {weight:g}" for weight in weights} <= {row[0] for row in outline.rows}
    assert "More: MCC, Recovered" in outline.text
    assert "Of 33 about 2 would be called by luck alone." in outline.text
    assert "chosen by the same score" in outline.text


def test_several_runs_share_an_overview(undrawn, make_run, tmp_path):
    runs = [make_run(), make_run(name="other", title="Another", weights=(0.3,))]
    outline = Outline(write_report(runs, tmp_path / "page.html").read_text())
    assert ["tiny", "weight 0.05", "0.820", "[0.812, 0.829]", "0.189", "1.000", "0.649", "7.39"] in outline.rows
    assert {"#run-1", "#run-2"} == {link["href"] for link in outline.attributes("a")}
    assert [section["id"] for section in outline.attributes("section")] == ["run-1", "run-2"]
    assert "other: Another" in outline.text


def test_what_was_run_and_where_are_described(drawn):
    text = Outline(drawn[1].read_text()).text
    assert "6 dictionaries (2 settings × 3 replicates) of 12 features (relu), trained for 40 steps" in text
    assert "[mechanisms.sparsity]" in text
    for fact in ("unbraid 0.1.0, numpy 2.4.6", "1 min 12 s", "not from a checkout", "2026-01-02 03:04:05 UTC"):
        assert fact in text


@pytest.mark.parametrize("state", ["killed", "stopped", "failed"])
def test_an_unfinished_run_is_refused_and_nothing_is_written(make_run, tmp_path, state):
    run = make_run(state={"killed": "running"}.get(state, state))
    with pytest.raises(UserError, match=rf"is {state}; accepted: a finished run.*unbraid resume"):
        write_report([run], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    assert not (run.path / "figures").exists()


def test_the_same_run_gives_the_same_bytes(undrawn, make_run, tmp_path):
    run = make_run()
    first, second = (write_report([run], tmp_path / f"{n}.html").read_bytes() for n in (1, 2))
    assert first == second


def test_a_page_elsewhere_leaves_the_run_as_it_is(make_run, tmp_path):
    run = make_run()
    before = sorted(run.path.rglob("*"))
    write_report([run], tmp_path / "elsewhere.html")
    assert sorted(run.path.rglob("*")) == before
