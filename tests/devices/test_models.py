"""Models, their training and every constraint, on every device: what the CPU makes of the same batches."""

import pytest
import torch

from tests.devices.elsewhere import There
from tests.models.constraints.test_battery import EXAMPLES
from tests.models.shapes import ALL, ASKED, TOKENS, start
from unbraid.battery.stories import Recall
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.models import Gauge, ModelTraining, Transformer
from unbraid.models.constraints import CONSTRAINTS
from unbraid.models.training import ModelState, train_model

TASK = Recall()
CASES = [(name, settings) for name, examples in EXAMPLES.items() for settings in examples]


@pytest.mark.parametrize("name", ALL)
def test_every_model_answers_where_it_is_asked(name, device, same):
    """Its tokens are here, it is there, and everything it says is here; asked there, all is there."""
    models, hooks = start(ALL[name]), ALL[name].hooks()
    there, asked = models.to(device), TOKENS.to(device)
    expected = models.forward(TOKENS, hooks, step=1)
    for tokens in (TOKENS, asked):
        output = there.forward(tokens, hooks, step=1)
        logits = there.read(output, ASKED.to(tokens.device))
        found = {"logits": logits, "resid": output.resid, **output.recorded, **output.costs}
        assert {tensor.device.type for tensor in found.values()} == {tokens.device.type}
        known = {"logits": models.read(expected, ASKED), "resid": expected.resid, **expected.recorded, **expected.costs}
        same(found, known, name, exactly=not name.startswith("gauge"))


@pytest.mark.parametrize("name", [name for name in ALL if "published" not in name])
def test_edits_are_made_where_it_is_asked(name, device):
    models, site = start(ALL[name]), ALL[name].sites()[-1]
    seen = []

    def edit(rows):
        seen.append(rows)
        return torch.zeros_like(rows)

    output = models.to(device).forward(TOKENS, [site], edit={site: edit}, ablate_heads=[(0, 0)])
    assert not isinstance(seen[0], There)
    assert not output.recorded[site].any()


def trained(settings, constraints, device):
    state = ModelState.start(settings, TASK, [0, 1], device)
    named = {name: stack_configs([CONSTRAINTS[name](**asked)] * 2, device) for name, asked in constraints}
    training = stack_configs([ModelTraining(steps=2, batch=4, learning_rate=rate) for rate in (1e-3, 2e-3)], device)
    outputs = list(train_model(state, TASK, training, named))
    if device.startswith("lazy"):
        assert all(isinstance(tensor, There) for tensor in state.tensors().values())
    last = outputs[-1]
    terms = {f"terms.{name}": cost for name, cost in last.terms.items()}
    return {**state.tensors(), **terms, "accuracy": last.accuracy, "norm": last.gradient_norm}


@pytest.mark.parametrize(
    "settings",
    [Transformer(d_model=8, heads=2, d_ff=12, dropout=0.2), Gauge(irreps="1x0e + 1x1e", layers=2, prior=0.5)],
    ids=["transformer", "gauge"],
)
def test_training(settings, device, same):
    exactly = isinstance(settings, Transformer)
    same(trained(settings, [], device), trained(settings, [], "cpu"), exactly=exactly)


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_every_constraint(name, asked, device, same):
    settings = Transformer(d_model=8, heads=2, d_ff=12)
    constraints = [(name, asked)]
    same(trained(settings, constraints, device), trained(settings, constraints, "cpu"), exactly=False)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_gauge_models_are_refused_in_other_precisions(precision):
    models = start(ALL["gauge"]).to(precision=precision)
    with pytest.raises(UserError, match=f"gauge model was to run in {precision}"):
        models.forward(TOKENS)
