"""`unbraid check-plugin`: what keeps its promises, and what breaks one; every sort is used from a configuration."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch

import unbraid as ub
from tests.plugging import HEAT, no_plugins
from unbraid import cli
from unbraid.cli.plugins import BATTERIES
from unbraid.config.plugins import registries
from unbraid.errors import UserError
from unbraid.results import load_run
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

EVERY_SORT = Path(__file__).with_name("every_sort.py")
HEAD = "import torch\nimport unbraid as ub\n\n\n"


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    with no_plugins():
        yield


def unbraid(*words, capsys):
    capsys.readouterr()
    code = cli.guarded(lambda: cli.app([*map(str, words)]))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_every_sort_has_a_battery():
    assert set(BATTERIES) == {registry.sort for registry in registries()}


def test_what_keeps_its_promises(capsys):
    code, printed, said = unbraid("check-plugin", EVERY_SORT, capsys=capsys)
    assert (code, said) == (0, ""), printed + said
    assert {line.rpartition(" ")[0].split(",")[0] for line in printed.splitlines() if not line.startswith(" ")} == {
        *("mechanism shrink", "activation rule squared", "firing rule alternating", "world one_hot"),
        *("constraint small_output", "attention kind sharper", "metric mean_strength", "experiment kind coin"),
    }
    assert "NO" not in printed
    assert printed.count("  yes ") == sum(len(battery.promises) for battery in BATTERIES.values()) - 3
    assert "–   the scale of activations can be folded in: its codes do not grow with pre-activations" in printed
    assert "–   gradients are those of finite differences: it adds no cost" in printed


BROKEN = {
    "Sums": (
        "company does not matter",
        "    def penalty(self, forward, memory, stack, signals):\n"
        "        return stack.encoder.square().sum().expand(stack.members) + 0 * stack.encoder.sum((1, 2))\n",
    ),
    "Forgets": (
        "resuming gives the same bits",
        "    def penalty(self, forward, memory, stack, signals):\n"
        "        seen = self.__dict__.setdefault('_seen', [])\n"
        "        seen.append(1)\n"
        "        return len(seen) * stack.encoder.square().sum((1, 2))\n",
    ),
    "Orders": (
        "relabelling features commutes with training",
        "    def penalty(self, forward, memory, stack, signals):\n"
        "        return 5 * stack.encoder[:, 0].square().sum(1)\n",
    ),
    "Pretends": (
        "gradients are those of finite differences",
        "    def penalty(self, forward, memory, stack, signals):\n"
        "        return stack.encoder.square().sum((1, 2)) + stack.encoder.detach().sum((1, 2))\n",
    ),
    "Raises": (
        "codes are only lowered or silenced",
        "    def encode(self, codes, memory, stack, signals):\n"
        "        return ub.Codes(codes.features, codes.values * 2, codes.width)\n",
    ),
    "Idles": (
        "does something",
        "    def penalty(self, forward, memory, stack, signals):\n        return torch.zeros(stack.members)\n",
    ),
    "Always": (
        "off is identity",
        "    weight: float = 1.0\n\n    def penalty(self, forward, memory, stack, signals):\n"
        "        return stack.encoder.square().sum((1, 2))\n",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_promise(name, capsys):
    promise, body = BROKEN[name]
    Path("broken.py").write_text(f"{HEAD}class {name}(ub.Mechanism):\n{body}")
    code, printed, _ = unbraid("check-plugin", "broken.py", capsys=capsys)
    assert code == 1
    assert re.search(rf"^  NO  {promise}: example 1, relu: .+", printed, re.MULTILINE), printed


def test_what_raises_is_told_with_its_line(capsys):
    Path("heat.py").write_text(HEAT.replace("return self", "raise IndexError('no feature')\n        return self"))
    code, printed, _ = unbraid("check-plugin", "heat.py", capsys=capsys)
    assert code == 1
    assert "  yes settings survive TOML" in printed
    assert (
        "  NO  does something: example 1, relu: the plugin heat.py, line 18, in penalty: IndexError: no fe" in printed
    )


def test_lists_of_plugins(capsys):
    code, printed, _ = unbraid("plugins", EVERY_SORT, capsys=capsys)
    assert code == 0
    assert re.search(r"^squared +activation rule +.*every_sort.py", printed, re.MULTILINE)
    code, printed, _ = unbraid("plugins", "--all", capsys=capsys)
    assert re.search(r"^topk +activation rule +built in", printed, re.MULTILINE)
    code, printed, said = unbraid("check-plugin", "nothing", capsys=capsys)
    assert code == 2
    assert "there is no plugin 'nothing'" in said


DICTIONARIES = """
plugins = ["every_sort.py"]
[world]
{world}
[dictionary]
d_sae = 8
[dictionary.activation]
kind = "squared"
[training]
steps = 6
batch = 32
[mechanisms.shrink]
[evaluation]
samples = 512
[evaluation.metrics.mean_strength]
[sweep]
"mechanisms.shrink.weight" = [0.0, 0.5]
seed = [0, 1]
"""
WORLDS = {
    "world": 'kind = "one_hot"',
    "firing": 'dimensions = 6\nn_features = 10\nactive = 2.0\nfiring = { kind = "alternating" }',
}


@pytest.fixture
def small(tmp_path):
    shutil.copy(EVERY_SORT, tmp_path / "every_sort.py")


def run(text, capsys):
    Path("small.toml").write_text(text)
    code, printed, said = unbraid("run", "small.toml", "--name", "small", "-q", capsys=capsys)
    assert (code, said) == (0, "")
    return Path(printed.strip())


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_of_dictionaries(small, capsys, world):
    folder = run(DICTIONARIES.format(world=WORLDS[world]), capsys)
    facts = Run(folder).facts()
    assert [card["name"] for card in facts["plugins"]] == ["every_sort.py"]
    assert facts["metrics"]["mean_strength"]["label"] == "Mean strength"
    with no_plugins():  # the run holds what is known of its metric
        results = load_run(folder)
        summary = results.summary.query("metric == 'mean_strength'")
        assert (summary["value"] > 0).all()
        assert summary["chance"].notna().all()
        assert summary["ceiling"].notna().all()
        assert len(results.differences.query("metric == 'mean_strength'")) == 1
        code, printed, _ = unbraid("show", "small", capsys=capsys)
        assert code == 0
        assert "Mean strength" in printed
        unbraid("report", "small", capsys=capsys)
        page = (folder / "report.html").read_text()
        assert "Mean strength" in page
        stack_needs_it = pytest.raises(UserError, match=r"every_sort.py .*accepted: `ub.load_plugin\(FILE\)`")
        with stack_needs_it:
            ub.load_stack(folder)
    assert ub.load_stack(folder).activation.to_dict() == {"kind": "squared"}


def test_the_metric_of_a_run_is_the_one_on_paper(small, capsys):
    folder = run(DICTIONARIES.format(world=WORLDS["world"]), capsys)
    stack = ub.load_stack(folder)
    from unbraid.config.plugins import read_file

    read_file("every_sort.py")
    from unbraid.worlds import WORLDS as REGISTERED

    world = REGISTERED["one_hot"]()
    x = world.batch(0, 512, "evaluation").x
    codes = stack.encode(x).to_dense().double()
    expected = codes.sum((1, 2)) / (codes > 0).sum((1, 2))
    values = read_json(folder / "stacks/00/scores.json")["values"]["mean_strength"]
    torch.testing.assert_close(torch.tensor(values).double()[: len(expected)], expected, rtol=1e-5, atol=1e-6)


MODELS = """
kind = "models"
plugins = ["every_sort.py"]
[model]
d_model = 8
heads = 2
layers = 1
d_ff = 8
attention = { kind = "sharper" }
[model.training]
steps = 3
batch = 4
[constraints.small_output]
[sweep]
seed = [0, 1]
"""


def test_a_run_of_models(small, capsys):
    folder = run(MODELS, capsys)
    terms = load_run(folder).curves["quantity"].unique()
    assert "loss: small_output" in terms
    refused = pytest.raises(UserError, match=r"every_sort.py .*accepted: `ub.load_plugin\(FILE\)` first")
    with no_plugins(), refused:
        ub.load_models(folder)
    assert ub.load_models(folder).members == 2


def test_a_run_of_a_kind_of_ones_own_in_worker_processes(small, capsys):
    """Two stages side by side, each in a process that was told of the plugin."""
    torch.set_num_threads(2)
    try:
        folder = run(
            'plugins = ["every_sort.py"]\nkind = "coin"\n[sweep]\nname = ["penny", "dime"]\nseed = [0, 1, 2]\n', capsys
        )
    finally:
        torch.set_num_threads(1)
    processes = {int(read_arrays(stack / "tables.safetensors")["process"]) for stack in Run(folder).stacks()}
    assert os.getpid() not in processes
    with no_plugins():
        results = load_run(folder)
        assert results.summary["metric"].tolist() == ["heads", "heads"]
        assert "Heads" in (folder / "report.html").read_text()
