"""From pre-activations to what fires: one record per rule, its fields are its settings."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Record, tagged


class Activation(Record, ABC):
    @abstractmethod
    def codes(self, pre: Float[Tensor, "m b f"]) -> Codes:
        """What fires, and how strongly."""


class Relu(Activation):
    """Everything positive fires."""

    kind: Literal["relu"] = "relu"

    def codes(self, pre: Float[Tensor, "m b f"]) -> Codes:
        return Codes.dense(pre.relu())


class TopK(Activation):
    """The k largest of each sample fire, where they are positive."""

    kind: Literal["topk"] = "topk"
    k: int = Field(ge=1, le=1 << 24)

    def codes(self, pre: Float[Tensor, "m b f"]) -> Codes:
        values, features = pre.topk(self.k, dim=-1, sorted=False)
        return Codes(features, values.relu(), pre.shape[-1])


ACTIVATIONS: dict[str, type[Activation]] = {
    "relu": Relu,
    "topk": TopK,
}

if TYPE_CHECKING:
    AnyActivation = Activation
else:
    AnyActivation = tagged(ACTIVATIONS)
