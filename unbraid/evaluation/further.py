"""Metrics of dictionaries that plugins bring: a function of arrays and what there is to know of it, in one class.

[evaluation.metrics.NAME] switches one on. It is measured on the dictionaries, on random ones of the same size (chance)
and, where a truth was planted, on an oracle (ceiling).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Config, JsonDict, Registry, Switches, switches
from unbraid.config.plugins import returned


@dataclass(frozen=True)
class Measured:
    """What a metric may look at: samples, what a dictionary makes of them, and the truth where one was planted.

    Parameters
    ----------
    x : Tensor, shape (b, d)
        The inputs.
    codes : Codes
        What fired: (m, b, f) when dense.
    reconstruction : Tensor, shape (m, b, o)
        What was decoded from the codes.
    directions : Tensor, shape (m, f, d)
        The unit direction of each feature.
    truth : Codes
        What fired of the planted features: (1, b, n) when dense. Empty where none are known.
    planted : Tensor, shape (n, d)
        Their directions.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> codes = ub.Codes.dense(torch.ones(1, 3, 4))
    >>> x, directions = torch.ones(3, 2), torch.ones(1, 4, 2)
    >>> measured = ub.Measured(x, codes, x[None], directions, ub.Codes.dense(torch.ones(1, 3, 0)), torch.ones(0, 2))
    >>> measured.codes.l0().tolist()
    [[4, 4, 4]]
    """

    x: Float[Tensor, "b d"]
    codes: Codes
    reconstruction: Float[Tensor, "m b o"]
    directions: Float[Tensor, "m f d"]
    truth: Codes
    planted: Float[Tensor, "n d"]


class DictionaryMetric(Config, ABC):
    """The base class of a metric of your own: settings as fields, `measure`, and how it is shown.

    Attributes
    ----------
    label, sentence, unit, format : str
        Its name in tables, what it is (no full stop), its unit, and how its numbers are written.
    better : {'higher', 'lower', 'neither'}
        Which way is better.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> class Strength(ub.DictionaryMetric):
    ...     sentence = "mean code of what fires"
    ...     def measure(self, measured):
    ...         return measured.codes.l1().mean(-1) / measured.codes.l0().mean(-1, dtype=torch.float32)
    >>> Strength.facts()["label"]
    'Strength'
    """

    label: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    unit: ClassVar[str] = ""
    format: ClassVar[str] = ".3f"
    better: ClassVar[Literal["higher", "lower", "neither"]] = "neither"

    @abstractmethod
    def measure(self, measured: Measured) -> Float[Tensor, "m"]:
        """One number a member."""

    @classmethod
    def facts(cls) -> JsonDict:
        """What tables and figures need to know of it; a run keeps it, so that they need not run the plugin."""
        shown = {"sentence": cls.sentence, "unit": cls.unit, "format": cls.format, "better": cls.better}
        return {"label": cls.label or cls.__name__, **shown}


METRICS: Registry[DictionaryMetric] = Registry("metric", DictionaryMetric, {}, by_kind=False)

if TYPE_CHECKING:
    EnabledMetrics = Switches
else:
    EnabledMetrics = switches(METRICS, "The plugins' metrics that are measured: presence is the switch.", __name__)


def measure(name: str, metric: DictionaryMetric, measured: Measured) -> Float[Tensor, "m"]:
    """What a metric says, which must be one number a member."""
    values = metric.measure(measured)
    members = len(measured.directions)
    if not isinstance(values, Tensor) or values.shape != (members,):
        found = f"a tensor of shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise returned(metric.measure, f"{found} as the metric '{name}'; accepted: one number a member, ({members},)")
    return values.detach().double()
