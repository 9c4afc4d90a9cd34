"""What a pass keeps: only what is named, under the names of TransformerLens, here with the member axis first.

blocks.0.hook_resid_pre | hook_resid_mid | hook_resid_post     m b t d     the residual stream
blocks.0.hook_attn_out | hook_mlp_out                          m b t d     what is added to it
blocks.0.attn.hook_q | hook_k | hook_v                         m b h t e   as the scores use them
blocks.0.attn.hook_pattern                                     m b h t s   what each head looks at
blocks.0.attn.hook_z                                           m b h t e   what each head reads
blocks.0.attn.hook_result                                      m b h t d   what each head writes
"""

from dataclasses import dataclass, field

from unbraid.axes import Tensor
from unbraid.config import nearest
from unbraid.errors import Refusal
from unbraid.models.shape import Shape

OF_A_BLOCK = ("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_out", "hook_resid_post")
OF_HEADS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")


@dataclass(frozen=True)
class Recorder:
    """Keeps the tensors that were asked for, as they pass."""

    asked: frozenset[str]
    kept: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, name: str, tensor: Tensor) -> None:
        if name in self.asked:
            self.kept[name] = tensor

    def inside(self, place: str) -> frozenset[str]:
        """What is asked for within a place, by the names there."""
        return frozenset(name.removeprefix(place) for name in self.asked if name.startswith(place))


def recorder(settings: Shape, names: frozenset[str]) -> Recorder:
    """One that keeps these; a name that the model does not have is refused."""
    if unknown := sorted(names - set(settings.hooks())) if names else []:
        raise Refusal(f"there is no '{unknown[0]}' to record; {nearest(unknown[0], settings.hooks())}")
    return Recorder(names)
