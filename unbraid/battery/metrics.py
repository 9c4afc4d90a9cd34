"""What every metric of a plugin promises, measured on small trained dictionaries and on the truth itself."""

from dataclasses import dataclass, replace
from functools import cache

import torch

from unbraid.axes import Float, Tensor
from unbraid.battery.promise import Example, Promise
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.evaluation.further import METRICS, DictionaryMetric, Measured, measure
from unbraid.metrics.catalog import METRICS as CATALOG
from unbraid.metrics.catalog import OF_PLUGINS
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=8, n_features=12, active=2.0)


@dataclass(frozen=True)
class MetricCase:
    """A metric by its name in the registry, and an example of its settings."""

    name: str
    example: Example

    @property
    def metric(self) -> DictionaryMetric:
        return METRICS[self.name](**self.example.settings)

    def of(self, measured: Measured) -> Float[Tensor, "m"]:
        return measure(self.name, self.metric, measured)


def metric_cases(name: str, example: Example) -> dict[str, MetricCase]:
    return {name: MetricCase(name, example)}


@cache
def trained() -> Stack:
    training = Training(steps=60, batch=64, learning_rate=0.02)
    return fit(WORLD, Dictionary(d_sae=10), [Sparsity(weight=0.2)], training, seeds=[0, 1, 2])


def measured(stack: Stack, order: Tensor | None = None) -> Measured:
    """What the metric is given of a stack, its samples in this order."""
    batch = WORLD.batch(0, 64, "evaluation")
    order = torch.arange(64) if order is None else order
    x, truth = batch.x[order], Codes.dense(batch.truth.to_dense()[:, order])
    codes = stack.encode(x)
    return Measured(x, codes, stack.decode(codes, x), stack.directions, truth, WORLD.directions)


def is_one_number_a_member(case: MetricCase) -> None:
    values = case.of(measured(trained()))
    assert values.isfinite().all(), f"of trained dictionaries it is {values.tolist()}"


def company_does_not_matter(case: MetricCase) -> None:
    together = case.of(measured(trained()))
    for index in range(3):
        alone = case.of(measured(trained().member(index)))
        torch.testing.assert_close(together[index : index + 1], alone, rtol=1e-5, atol=1e-6)


def relabelling_changes_nothing(case: MetricCase) -> None:
    stack, order = trained(), torch.arange(9, -1, -1)
    relabelled = stack.with_parameters({name: p[:, order] for name, p in stack.parameters().items()})
    torch.testing.assert_close(case.of(measured(relabelled)), case.of(measured(stack)), rtol=1e-5, atol=1e-6)


def the_order_of_samples_changes_nothing(case: MetricCase) -> None:
    shuffled = measured(trained(), torch.arange(63, -1, -1))
    torch.testing.assert_close(case.of(shuffled), case.of(measured(trained())), rtol=1e-4, atol=1e-5)


def works_on_lists(case: MetricCase) -> None:
    """Codes may be lists of what fired, and say the same."""
    dense = measured(trained())
    values, features = torch.sort(dense.codes.to_dense(), dim=-1, descending=True, stable=True)
    lists = replace(dense, codes=Codes(features.int(), values, dense.codes.width))
    torch.testing.assert_close(case.of(lists), case.of(dense), rtol=1e-4, atol=1e-5)


def tells_dictionaries_apart(case: MetricCase) -> None:
    random = Stack.start(Dictionary(d_sae=10), WORLD.dimensions, [5, 6, 7])
    values = torch.cat([case.of(measured(trained())), case.of(measured(random))])
    assert (values - values[0]).abs().max() > 1e-6, f"it is {float(values[0]):.3g} of all dictionaries"


def is_described(case: MetricCase) -> None:
    facts, known = METRICS[case.name].facts(), CATALOG.get(case.name)
    assert facts["sentence"], "it has no sentence"
    assert known is None or known.section == OF_PLUGINS, f"'{case.name}' is the name of a metric that is built in"
    format(0.5, facts["format"])


PROMISES: tuple[Promise[MetricCase], ...] = (
    Promise("one finite number a member", is_one_number_a_member),
    Promise("tells dictionaries apart", tells_dictionaries_apart),
    Promise("company does not matter", company_does_not_matter),
    Promise("relabelling features changes nothing", relabelling_changes_nothing),
    Promise("the order of samples changes nothing", the_order_of_samples_changes_nothing),
    Promise("codes as lists give the same", works_on_lists),
    Promise("has a name of its own, and a sentence", is_described),
)
