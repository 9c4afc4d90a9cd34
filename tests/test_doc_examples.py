"""The configurations and the code that pages show are accepted and run; pages that need a language model's data do not
stand here, and those on adding something have tests of their own."""

import re
import tomllib
from textwrap import dedent

import pytest

from tests.pages import ROOT, code_blocks
from unbraid.config.sweep import combine
from unbraid.pipeline.expand import expand
from unbraid.studies.claims import load_claims

CONFIGURATIONS = [
    pytest.param(block, id=f"{page}-{index}")
    for page in ("baselines", "superposition", "mechanisms", "pipeline", "configuration")
    for index, block in enumerate(code_blocks(f"{page}.md", "toml"))
]


def test_every_page_has_an_example():
    assert len(CONFIGURATIONS) == 6


@pytest.mark.parametrize("block", CONFIGURATIONS)
def test_a_configuration_of_a_page_is_accepted(block: str):
    data = tomllib.loads(block)
    assert len(expand(data, "the page").members) == len(list(combine(data)))


def test_the_code_on_baselines_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = code_blocks("baselines.md", "python")
    exec(code.replace("n_components=512", "n_components=16").replace("2048", "128"), {})
    assert "mmcs" in capsys.readouterr().out


def test_the_claim_of_the_page_is_the_one_that_ships(tmp_path):
    text = (ROOT / "docs" / "claims-ledger.md").read_text()
    block = dedent(re.findall(r"   ```toml\n(.*?)   ```", text, re.DOTALL)[0])
    for source in ("head_constraints", "gauge", "mechanisms"):
        (tmp_path / f"{source}.toml").write_text("")
    (tmp_path / "superposition.toml").write_text(block)
    (shown,) = load_claims(tmp_path).values()
    shipped = load_claims()[shown.id]
    assert (shown.statement, shown.study) == (shipped.statement, shipped.study)
