"""From pre-activations to what fires: one record per rule, its fields are its settings."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import tagged
from unbraid.dictionaries.activation import Activation, Weights
from unbraid.dictionaries.batch_topk import BatchTopK
from unbraid.dictionaries.gated import Gated
from unbraid.dictionaries.jump_relu import JumpRelu
from unbraid.dictionaries.variational import Variational


class Relu(Activation):
    """Everything positive fires."""

    codes_held: ClassVar[int] = 4
    kind: Literal["relu"] = "relu"

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights | None = None) -> Codes:
        return Codes.dense(pre.relu())


class TopK(Activation):
    """The k largest of each sample fire, where they are positive."""

    codes_held: ClassVar[int] = 4
    kind: Literal["topk"] = "topk"
    k: int = Field(ge=1, le=1 << 24)

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights | None = None) -> Codes:
        values, features = pre.topk(self.k, dim=-1, sorted=False)
        return Codes(features, values.relu(), pre.shape[-1])


ACTIVATIONS: dict[str, type[Activation]] = {
    "relu": Relu,
    "topk": TopK,
    "batchtopk": BatchTopK,
    "jumprelu": JumpRelu,
    "gated": Gated,
    "variational": Variational,
}

if TYPE_CHECKING:
    AnyActivation = Activation
else:
    AnyActivation = tagged(ACTIVATIONS)
