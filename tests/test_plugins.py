"""Plugins of every sort are used like what is built in; their mistakes are told as theirs; nobody runs them unasked."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import unbraid as ub
from tests.pages import ROOT, code_blocks
from tests.plugging import HEAT, no_plugins, times_run, write_heat
from unbraid import cli
from unbraid.config import Registry, check, name_of
from unbraid.config.plugins import check_loaded, fault, for_workers, load_for_worker, plugin_of, used_by
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import MECHANISMS, Enabled, enabled
from unbraid.dictionaries.mechanisms.mechanism import check_signals
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import PluginFault, UserError
from unbraid.explorer.app import create_app
from unbraid.models.attention import ATTENTIONS
from unbraid.models.attention.attention import mix_by_softmax
from unbraid.pipeline.expand import expand, plan_of
from unbraid.pipeline.serve import Worker
from unbraid.results import load_run
from unbraid.storage.files import read_json
from unbraid.storage.runs import Run

TINY = """
{top}
title = "Tiny"
[world]
dimensions = 8
n_features = 12
active = 2.0
[dictionary]
d_sae = 10
[training]
steps = 8
batch = 16
[mechanisms.sparsity]
weight = 0.1
{tables}
[evaluation]
samples = 256
[checkpoints]
log_every = 2
every = 4
[sweep]
seed = [0, 1]
"""
HEATED = TINY.format(top='plugins = ["heat.py"]', tables="[mechanisms.heat]\nweight = 0.5")


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    with no_plugins():
        yield


def unbraid(*words, capsys):
    """A command line in this process: its exit code, and what it printed."""
    capsys.readouterr()
    code = cli.guarded(lambda: cli.app([*map(str, words)]))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# Files


def test_a_file_is_run_once_and_its_classes_have_names(tmp_path):
    path = write_heat(tmp_path)
    assert ub.load_plugin(path) == ub.load_plugin(str(path)) == ("mechanism heat",)
    assert times_run(tmp_path) == 1
    mechanisms = enabled(check(Enabled, {"sparsity": {}, "heat": {"weight": 2.0}}, "here"))
    assert list(mechanisms) == ["sparsity", "heat"]
    assert mechanisms["heat"].to_dict() == {"weight": 2.0}
    assert plugin_of(type(mechanisms["heat"])).name == "heat.py"
    assert plugin_of(type(mechanisms["sparsity"])) is None


def test_a_changed_file_replaces_what_it_brought(tmp_path):
    path = write_heat(tmp_path)
    ub.load_plugin(path)
    path.write_text(path.read_text().replace("class Heat", "class Cold"))
    assert ub.load_plugin(path) == ("mechanism cold",)
    assert "heat" not in MECHANISMS
    assert times_run(tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import unbraid as ub\n\nraise KeyError('lost')\n", r"the plugin bad.py, line 3: KeyError: 'lost'"),
        ("import unbraid as ub\nclass (:\n", r"the plugin bad.py, line 2: SyntaxError"),
        ("import sys\nsys.exit(0)\n", r"the plugin bad.py, line 2: SystemExit: 0"),
        (
            "a = 1\n",
            r"the plugin bad.py has no class for a registry; accepted: .* one of Mechanism, Activation, World,",
        ),
        (
            "import unbraid as ub\nclass Ok(ub.Mechanism): pass\nclass Sparsity(ub.Mechanism): pass\n",
            r"the plugin bad.py: the mechanism 'sparsity' is built in; accepted: another name",
        ),
        (
            "import unbraid as ub\nclass Mine(ub.Activation):\n    def codes(self, pre, weights): return pre\n",
            r"Mine has no kind to be told by; accepted: a field kind: Literal\[\"mine\"\] = \"mine\"",
        ),
    ],
)
def test_a_file_that_brings_nothing_is_refused_in_one_line(tmp_path, text, said):
    Path("bad.py").write_text(text)
    with pytest.raises(UserError, match=said) as problem:
        ub.load_plugin("bad.py")
    assert "\n" not in str(problem.value)
    assert not set(MECHANISMS) - MECHANISMS.built_in
    assert used_by(*MECHANISMS.values()) == ()


def test_two_files_may_not_bring_one_name(tmp_path):
    ub.load_plugin(write_heat(tmp_path))
    with pytest.raises(
        UserError, match=r"the plugin other.py: the mechanism 'heat' is unbraid_plugin_heat_\w+.Heat alr"
    ):
        ub.load_plugin(write_heat(tmp_path, "other.py").relative_to(tmp_path))
    with pytest.raises(UserError, match=r"the plugin absent\.py cannot be read"):
        ub.load_plugin("absent.py")


# Classes of a notebook


class Doubling(ub.Activation):
    """Twice what is positive."""

    kind: Literal["doubling"] = "doubling"

    def codes(self, pre, weights):
        return ub.Codes.dense(2 * pre.relu())


class Looking(ub.Attention):
    kind: Literal["looking"] = "looking"

    def mix(self, inputs):
        return mix_by_softmax(inputs)


def test_a_class_of_ones_own_needs_no_registry():
    world = ub.Superposition(dimensions=6, n_features=9, active=2.0)
    stack = ub.fit(world, ub.Dictionary(d_sae=8, activation=Doubling()), training=ub.Training(steps=3), seeds=[0])
    x = world.batch(0, 5).x
    torch.testing.assert_close(stack.encode(x).to_dense(), 2 * stack.pre_activations(x).relu())
    assert ub.Transformer(attention=Looking()).to_dict()["attention"] == {"kind": "looking"}


def test_registered_it_has_a_name_and_may_be_written_anew():
    assert ub.register(Looking) is Looking
    assert check(ub.Transformer, {"attention": {"kind": "looking"}}, "here").attention == Looking()

    def cell():
        class Notebook(ub.Mechanism):
            """A cell of a notebook, run once more."""

        return Notebook

    first, second = ub.register(cell()), ub.register(cell())
    assert first is not second
    assert MECHANISMS["notebook"] is second
    assert plugin_of(first) is None
    with pytest.raises(UserError, match="str derives from nothing that is registered"):
        ub.register(str)
    assert ATTENTIONS["looking"] is Looking


def test_what_this_process_alone_knows_is_not_sent_to_others(tmp_path):
    ub.register(Doubling)
    rule = {"dictionary": {"d_sae": 8, "activation": {"kind": "doubling"}}, "training": {"steps": 2}}
    plain = {"dictionary": {"d_sae": 8}, "training": {"steps": 2}}
    for config, sent in ((rule, False), (plain, True)):
        plan = expand(config, "here")
        assert [stage.can_be_sent for stage in plan.first.stages(plan.stacks[0])] == [sent, sent]


@pytest.mark.parametrize(
    ("name", "called"), [("AdaptiveL1", "adaptive_l1"), ("PAnnealing", "p_annealing"), ("KLCost", "kl_cost")]
)
def test_names_in_snake_case(name, called):
    assert name_of(type(name, (ub.Mechanism,), {"__module__": __name__})) == called
    assert {name_of(kind) for kind in MECHANISMS.values()} == set(MECHANISMS)


# What a mechanism may do


class Clock(ub.Mechanism):
    """Costs as many as it has seen steps, times the sum of encoder biases, and tells others."""

    declares: ClassVar[dict[str, float | None]] = {"time": 0.0}
    writes: ClassVar[frozenset[str]] = frozenset({"time"})

    def start(self, stack):
        return {"steps": torch.zeros(stack.members, dtype=stack.encoder.dtype)}

    def signal(self, memory, stack):
        return {"time": memory["steps"]}

    def penalty(self, forward, memory, stack, signals):
        return memory["steps"] * stack.encoder_bias.sum(1)

    def observe(self, forward, memory, stack, signals):
        return {"steps": memory["steps"] + 1}


class Late(ub.Mechanism):
    """Silences every code but at the start: by a signal that another declares, and its own memory."""

    reads: ClassVar[frozenset[str]] = frozenset({"time"})

    def start(self, stack):
        return {"factor": torch.full((stack.members,), 0.5)}

    def encode(self, codes, memory, stack, signals):
        scale = torch.where(signals["time"] > 0, 0.0, memory["factor"])
        return ub.Codes(codes.features, codes.values * scale.to(codes.values)[:, None, None], codes.width)


@pytest.mark.parametrize("take", ["fast", "readable"])
def test_costs_and_codes_may_read_memory_and_signals_of_their_own(take):
    mechanisms, training = {"clock": Clock(), "late": Late()}, ub.Training(batch=16, learning_rate=1e-3)
    world = ub.Superposition(dimensions=6, n_features=9, active=2.0)
    state = State.start(ub.Dictionary(d_sae=8), 6, mechanisms, [0, 1])
    for position in range(3):
        x = world.batch(position, 16).x
        plain = state.stack.encode(x)
        bias = state.stack.encoder_bias.sum(1).clone()
        output = (
            advance(state, Inputs(x), training, mechanisms) if take == "fast" else step(state, x, training, mechanisms)
        )
        torch.testing.assert_close(output.terms["clock"], position * bias)
        expected = plain.l0().double().mean(-1) if position == 0 else torch.zeros(2).double()
        torch.testing.assert_close(output.l0, expected)


def test_a_signal_that_nobody_declares_is_refused():
    check_signals({"clock": Clock(), "late": Late()})
    with pytest.raises(UserError, match="late reads 'time', which is not a signal"):
        check_signals({"late": Late()})
    with pytest.raises(UserError, match="clock writes 'time', which nothing enabled reads"):
        check_signals({"clock": Clock()})

    class Again(Late):
        declares: ClassVar[dict[str, float | None]] = {"time": 1.0}

    class Taken(Late):
        declares: ClassVar[dict[str, float | None]] = {"l1": 1.0}

    with pytest.raises(UserError, match=r"again declares 'time' as 1.0, and another as 0.0"):
        check_signals({"clock": Clock(), "again": Again()})
    with pytest.raises(UserError, match="taken declares 'l1', which is a signal already"):
        check_signals({"taken": Taken()})


# Runs


@pytest.fixture(scope="module")
def heated(tmp_path_factory):
    """A finished run of a configuration that names a file beside it, and one that was stopped after a checkpoint."""
    folder = tmp_path_factory.mktemp("heated")
    with no_plugins(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CANARY", str(folder / "canary"))
        write_heat(folder)
        (folder / "heated.toml").write_text(HEATED)
        assert cli.guarded(lambda: cli.app(["run", "heated.toml", "--name", "done", "-q"])) == 0
        plan = expand(stripped(folder), "heated.toml")
        Run.create(folder / "later", "stopped", (folder / "runs/done/config.toml").read_text(), plan.facts())
    return folder


def stripped(folder):
    from unbraid.config import read_toml
    from unbraid.config.plugins import take_plugins

    return take_plugins(read_toml(folder / "heated.toml"), str(folder / "heated.toml"))


@pytest.fixture
def runs(heated, tmp_path):
    """Those runs, copied to where this test may change them."""
    shutil.copytree(heated, tmp_path, dirs_exist_ok=True)
    (tmp_path / "canary").unlink()
    return tmp_path


def test_a_configuration_names_a_file_beside_it(heated):
    run = heated / "runs" / "done"
    (card,) = read_json(run / "run.json")["plugins"]
    assert card["name"] == "heat.py"
    assert card["provides"] == ["mechanism heat"]
    assert re.fullmatch(r"[0-9a-f]{64}", card["sha256"])
    assert "plugins" not in (run / "config.toml").read_text()
    results = load_run(run)
    assert (results.curves.query("quantity == 'loss: heat'")["value"] > 0).sum() == 2 * 4
    assert "heat" in (run / "report.html").read_text()
    assert times_run(heated) == 1


def test_a_plan_takes_the_files_that_its_configuration_names(tmp_path, capsys):
    write_heat(tmp_path)
    (tmp_path / "heated.toml").write_text(HEATED)
    code, printed, said = unbraid("plan", "heated.toml", capsys=capsys)
    assert (code, said) == (0, "")
    assert "train-stack" in printed


def test_nothing_that_reads_a_run_runs_its_plugin(runs, capsys):
    """A file named like the plugin's lies in the run directory too."""
    write_heat(runs, "runs/done/heat.py")
    assert len(load_run(runs / "runs/done").scores)
    assert ub.load_stack(runs / "runs/done").members == 2
    for words in (["show", "done"], ["show", "done", "--json"], ["report", "done"], ["list"], ["resume", "done"]):
        code, _, said = unbraid(*words, capsys=capsys)
        assert (code, said) == (0, "") or "checksum" in said, said
    client = TestClient(create_app(runs / "runs", "token", None, None, {"testserver"}))
    client.get("/?token=token")
    for page in ("/", "/runs/done", "/runs/done/settings", "/runs/done/training", "/runs/done/features/0/0/1"):
        client.get(page)
    with pytest.raises(UserError, match=r"heat.py .*runs no code by itself; accepted: `unbraid explore --plugin FILE`"):
        Worker(runs / "runs/done").describe()
    assert times_run(runs) == 0
    assert Worker(runs / "runs/done", [str(runs / "heat.py")]).describe()["kind"] == "dictionaries"
    assert times_run(runs) == 1


def test_resuming_takes_the_file_as_it_was(runs, capsys):
    command = ["resume", "later/stopped", "-q"]
    code, _, said = unbraid(*command, capsys=capsys)
    assert code == 2
    assert said == (
        "unbraid: later/stopped was made with the plugin heat.py (mechanism heat), and a run directory runs no code by "
        "itself; accepted: `unbraid resume later/stopped --plugin FILE`, with the file as it was\n"
    )
    assert times_run(runs) == 0
    changed = write_heat(runs, "changed.py", HEAT.replace("mean((1, 2))", "sum((1, 2))"))
    (runs / "elsewhere").mkdir()
    changed = changed.rename(runs / "elsewhere" / "heat.py")
    with no_plugins():
        code, _, said = unbraid(*command, "--plugin", changed, capsys=capsys)
        assert code == 2
        assert "heat.py (mechanism heat), which has changed since; accepted:" in said
    with no_plugins():
        code, out, said = unbraid(*command, "--plugin", "heat.py", capsys=capsys)
    assert (code, out, said) == (0, "later/stopped\n", "")
    ended, whole = (runs / name / "stacks/00/weights.safetensors" for name in ("later/stopped", "runs/done"))
    assert ended.read_bytes() == whole.read_bytes()


def test_a_runs_own_configuration_names_no_file(runs, capsys):
    config = runs / "runs/done/config.toml"
    write_heat(runs, "runs/done/heat.py")
    code, _, said = unbraid("run", config, "-q", capsys=capsys)
    assert (code, "there is no setting 'mechanisms.heat'" in said) == (2, True)
    config.write_text('plugins = ["heat.py"]\n' + config.read_text())
    code, _, said = unbraid("run", config, "-q", capsys=capsys)
    assert code == 2
    assert "is a run's, whose plugins are not run because it names them; accepted: --plugin FILE" in said
    assert times_run(runs) == 0


def test_a_plugin_is_in_the_key_of_the_stages_that_use_it(tmp_path):
    path = write_heat(tmp_path)
    plain = expand({"training": {"steps": 2}}, "here")
    before = [stage.key for stage in plain.first.stages(plain.stacks[0])]
    keys = []
    for text in (HEAT, HEAT + "\n# changed\n"):
        ub.load_plugin(write_heat(tmp_path, text=text))
        plan = expand({"training": {"steps": 2}, "mechanisms": {"heat": {}}}, "here")
        keys.append([stage.key for stage in plan.first.stages(plan.stacks[0])])
        again = expand({"training": {"steps": 2}}, "here")
        assert [stage.key for stage in again.first.stages(again.stacks[0])] == before
    assert not set(keys[0]) & set(keys[1])
    assert path.exists()


def test_worker_processes_are_told_what_to_load(tmp_path):
    """That they do is tested in tests/battery, in a run of side-by-side stages."""
    ub.load_plugin(write_heat(tmp_path))
    ((path, digest),) = for_workers()
    assert (path, digest) == (str(tmp_path / "heat.py"), plugin_of(MECHANISMS["heat"]).sha256)
    with no_plugins():
        load_for_worker([(path, digest)])
        assert plugin_of(MECHANISMS["heat"]).sha256 == digest
        with pytest.raises(UserError, match=r"heat.py was changed while it was at work"):
            load_for_worker([(path, "0" * 64)])


# The page


def test_the_code_of_the_page_runs():
    notebook, examples, signals, metric = code_blocks("plugins.md", "python")
    scope: dict[str, Any] = {"ub": ub}
    for block in (notebook, examples, signals, metric):
        exec(block, scope)
    assert scope["stack"].members == 5
    (example,) = scope["EXAMPLES"]["short_encoder"]
    scope["ShortEncoder"](**example.settings)
    with pytest.raises(UserError, match="clock writes 'time', which nothing enabled reads"):
        check_signals({"clock": scope["Clock"]()})
    check_signals({"clock": scope["Clock"](), "late": scope["Late"]()})
    codes = ub.Codes.dense(torch.tensor([[[1.0, 3.0], [0.0, 2.0]]]))
    x, rows = torch.zeros(2, 2), torch.eye(2)[None]
    measured = ub.Measured(x, codes, x[None], rows, ub.Codes.dense(torch.zeros(1, 2, 0)), torch.zeros(0, 2))
    assert scope["MeanStrength"]().measure(measured).tolist() == [2.0]


# Mistakes

RAISES = HEAT.replace("return self.weight", "raise IndexError('no feature')\n        return self.weight")
SHAPE = HEAT.replace(".mean((1, 2))", ".mean(1)")
FLOAT = HEAT.replace("return self.weight * stack.encoder.square().mean((1, 2))", "return 1.0")
MEMORY = HEAT + "\n    def observe(self, forward, memory, stack, signals):\n        return {'more': stack.encoder}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RAISES, r"the plugin heat.py, line 18, in penalty: IndexError: no feature"),
        (
            SHAPE,
            r"heat.py, line 17: Heat.penalty returned a tensor of shape \(1, 8\) as 'heat'; accepted: a cost per m",
        ),
        (
            FLOAT,
            r"heat.py, line 17: Heat.penalty returned float as 'heat'; accepted: a cost per member, \(1,\), or None",
        ),
        (MEMORY, r"heat.py, line 20: Heat.observe returned the memory .*; accepted: what `start` has, {}"),
    ],
)
def test_what_a_plugin_does_wrong_is_told_with_its_file_and_line(tmp_path, capsys, text, said):
    write_heat(tmp_path, text=text)
    Path("heated.toml").write_text(HEATED)
    code, _, error = unbraid("run", "heated.toml", "--name", "wrong", "-q", capsys=capsys)
    assert code == 1
    assert re.search(said, error), error
    assert "of ours" not in error
    assert error.count("\n") == 1
    status = read_json(tmp_path / "runs/wrong/status.json")
    assert (status["state"], bool(re.search(said, status["sentence"]))) == ("failed", True)


def test_an_error_of_ours_is_not_blamed_on_a_plugin(tmp_path):
    ub.load_plugin(write_heat(tmp_path))
    with pytest.raises(ValueError, match="ours") as problem:
        raise ValueError("ours")
    assert fault(problem.value) is None
    assert issubclass(PluginFault, UserError)


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ('plugins = "heat.py"', "plugins is 'heat.py'; accepted: a list of files, as plugins = [\"mine.py\"]"),
        ('plugins = ["absent.py"]', "the plugin absent.py cannot be read (No such file or directory)"),
    ],
)
def test_a_list_of_files_that_cannot_be_is_refused(capsys, top, said):
    Path("tiny.toml").write_text(TINY.format(top=top, tables=""))
    code, _, error = unbraid("run", "tiny.toml", "-q", capsys=capsys)
    assert code == 2
    assert said in error


def test_what_was_made_with_a_package_asks_for_the_package():
    card = {"origin": "package", "name": "some 1.0", "sha256": "0", "provides": ["world there"]}
    with pytest.raises(UserError, match=r"some 1.0 \(world there\), .*; accepted: that package installed"):
        check_loaded([card], "runs/x", "a command")
    check_loaded(None, "runs/x", "a command")


# The package of examples/plugin


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The example, built and installed into a folder, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    asked = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *asked, "--target", folder / "site", folder / "source"]
    subprocess.run(command, check=True, cwd=folder)
    shutil.rmtree(folder / "source")
    return folder / "site"


def test_an_installed_package_is_found_by_name(package, tmp_path, monkeypatch, capsys):
    text = (ROOT / "examples" / "plugin" / "spread.toml").read_text().replace('plugins = ["unbraid_spread.py"]', "")
    Path("spread.toml").write_text(text)
    small = ["training.steps=4", "training.batch=32", "evaluation.samples=256", "-q"]
    code, _, said = unbraid("run", "spread.toml", *small, capsys=capsys)
    assert (code, "there is no setting 'mechanisms.decoder_spread'" in said) == (2, True)
    monkeypatch.syspath_prepend(package)
    code, printed, _ = unbraid("plugins", capsys=capsys)
    assert re.search(r"decoder_spread +mechanism +unbraid-spread 0.1.0", printed)
    code, _, said = unbraid("run", "spread.toml", "--name", "spread", *small, capsys=capsys)
    assert (code, said) == (0, "")
    run = Run.open(tmp_path / "runs" / "spread")
    assert run.facts()["plugins"][0]["name"] == "unbraid-spread 0.1.0"
    assert read_json(
        run.path / "members.json" if (run.path / "members.json").exists() else run.stack(0) / "members.json"
    )
    line = json.loads((run.stack(0) / "log.jsonl").read_text().splitlines()[-1])
    assert np.count_nonzero(line["terms"]["decoder_spread"]) == 5  # of ten: weight 0 and weight 1
    plan_of(run)
    with no_plugins():
        plan_of(run)  # an installed package needs no naming


def test_the_example_has_the_size_of_a_cookie():
    lines = (ROOT / "examples" / "plugin" / "unbraid_spread.py").read_text().splitlines()
    assert len(lines) <= 25


def test_the_test_of_the_example_passes(package):
    test = ROOT / "examples" / "plugin" / "test_spread.py"
    shutil.copy(test, package / "test_spread.py")
    asked = ["-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", package, "test_spread.py"]
    subprocess.run([sys.executable, "-m", "pytest", *asked], check=True, cwd=package, capture_output=True)


def test_registries_are_dictionaries():
    registry = Registry("mechanism", ub.Mechanism, {"sparsity": ub.Sparsity}, by_kind=False)
    assert registry.find("sparsity") is ub.Sparsity
    assert registry.find("nothing") is None
    assert registry.find(3) is None
