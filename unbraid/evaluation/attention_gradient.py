"""How much of the gradient reaches the embeddings through attention weights, as attention is made sharper.

x        = the embedded tokens        A = the attention weights of the last layer
whole    = ∂ loss / ∂ x               through = (∂ loss / ∂ A) (∂ A / ∂ x)
norm     = Σ_stories ‖through‖, the loss being a mean over all questions
share    = norm / Σ_stories ‖whole‖   sharpness: 0 uniform, 1 a single key (`metrics/attention.py`)

∂A/∂scores = diag(A) - AAᵀ is 0 for attention to a single key: what learns *where* to attend then stops, while what is
read there (the path through values) goes on. Whether that happens is asked by an intervention: the queries of the last
layer are multiplied by each of `FACTORS`, all else left alone. Scores are of the share, which does not depend on how
large the loss is: that changes with the factor, too.
"""

import torch

from unbraid.axes import Float, Tensor
from unbraid.metrics import attention
from unbraid.models import Hopfield, Models, Transformers
from unbraid.models.training import answer_loss
from unbraid.worlds.stories import StoryBatch

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
AS_IT_IS, SHARPENED = FACTORS.index(1.0), FACTORS.index(8.0)
EMBEDDED = "blocks.0.hook_resid_pre"

Named = dict[str, Tensor]


def gradient_scores(member: Models, batch: StoryBatch) -> tuple[Named, Named]:
    """Scores, each `1`, and tables over `FACTORS`, each `1 f`, of a single model; {} of Hopfield's and other kinds."""
    if not isinstance(member, Transformers) or isinstance(member.settings.attention, Hopfield):
        return {}, {}
    measured = [gradient_share(sharpened(member, factor), batch) for factor in FACTORS]
    share, norm, sharpness = (torch.stack(values, 1) for values in zip(*measured, strict=True))
    scores = {
        "attention_gradient": share[:, AS_IT_IS],
        "attention_gradient_left": share[:, SHARPENED] / share[:, AS_IT_IS],
    }
    return scores, {"gradient_share": share, "gradient_norm": norm, "gradient_sharpness": sharpness}


def sharpened(models: Transformers, factor: float) -> Transformers:
    """The same models with the queries of the last layer multiplied."""
    name = f"blocks.{models.settings.layers - 1}.attn.qkv"
    weights = models.weights[name].clone()
    weights[:, : models.settings.d_model] *= factor
    return models.with_parameters({**models.weights, name: weights})


@torch.enable_grad()
def gradient_share(models: Models, batch: StoryBatch) -> tuple[Float[Tensor, "m"], ...]:
    """The share of the gradient through the last layer's attention weights, its norm, and how sharp those are."""
    pattern = f"blocks.{models.settings.layers - 1}.attn.hook_pattern"
    leaves = models.to(batch.tokens.device).requires_grad_copy()
    output = leaves.forward(batch.tokens, [EMBEDDED, pattern])
    embedded, weights = output.recorded[EMBEDDED], output.recorded[pattern]
    loss = answer_loss(leaves.read(output, batch.asked), batch.answers).sum()  # members and stories share nothing
    whole, by_weights = torch.autograd.grad(loss, [embedded, weights], retain_graph=True)
    (through,) = torch.autograd.grad(weights, [embedded], by_weights)
    keys = attention.allowed(batch.mask, models.settings.causal) & batch.mask[:, :, None]
    sharpness = attention.sharpness(weights.detach(), keys).mean(1)
    return attention.norm_share(through, whole), attention.summed_norm(through), sharpness
