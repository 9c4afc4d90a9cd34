"""docs/formats.md: every format is on the page with what is done to it, and its configuration can be run."""

import tomllib

from tests.dictionaries.formats.test_golden import GOLDEN
from tests.pages import ROOT, code_blocks
from unbraid.dictionaries.formats import FORMATS
from unbraid.dictionaries.formats.format import Format
from unbraid.pipeline.expand import expand


def test_every_format_says_whether_it_is_read_and_written():
    page = (ROOT / "docs/formats.md").read_text()
    rows = {line.split("`")[1]: line.split("|")[2:4] for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == set(FORMATS)
    for name, (_, written) in rows.items():
        assert (written.strip() == "–") is (type(FORMATS[name]).write is Format.write), name


def test_the_configuration_that_compares_is_accepted():
    (block,) = code_blocks("formats.md", "toml")
    members = expand(tomllib.loads(block.replace("dictionaries/theirs", str(GOLDEN / "saelens/topk"))), "page").members
    assert [member.experiment.training.steps for member in members] == [2000, 0, 2000]
