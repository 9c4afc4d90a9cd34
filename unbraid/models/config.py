"""Configurations of transformers: what every architecture has, the pre-norm transformer, and the published encoder."""

import re
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from unbraid.config import Config, PerMemberFloat
from unbraid.models.attention import AnyAttention, Softmax
from unbraid.models.feed_forward import AnyFeedForward, Dense
from unbraid.schedule import MOST_STEPS, Schedule

BLOCK_HOOKS = ("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_out", "hook_resid_post")
HEAD_HOOKS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")
NO_ROWS = re.compile(r".*hook_(pattern|kl|gate|variance|frame|memory|energy)")
"""Hooks that do not have one vector a token."""
MOST = 1 << 16


class CostModel(NamedTuple):
    """About how much one model costs."""

    weights: int
    """Numbers in its layers."""
    activations: int
    """Numbers that one token of a batch keeps for the backward pass."""
    products: int
    """Multiplications of one token's forward pass."""


class ModelTraining(Schedule):
    """How models are trained: steps, batch size, learning rate. The optimiser is AdamW; warm-up and decay are linear.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.ModelTraining(steps=400, warmup_share=0.1).learning_rate
    0.002
    """

    steps: int = Field(default=600, ge=1, le=MOST_STEPS)
    """Number of optimiser steps, one batch each; more train longer."""
    batch: int = Field(default=64, ge=1, le=1 << 20)
    """Sequences in a step; more are slower and less noisy."""
    learning_rate: PerMemberFloat = Field(default=2e-3, gt=0)
    """AdamW's learning rate after warm-up; higher learns faster, too high diverges."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay, relative to the learning rate; raising it keeps weights smaller."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest gradient norm of a member; longer gradients are scaled down to it. None: no clipping."""


class HeadEvaluation(Config):
    """How many test stories models and their heads are evaluated on.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.HeadEvaluation(stories=256).heads
    256
    """

    stories: int = Field(default=1024, ge=1, le=10**9)
    """Test stories that the models answer; more make accuracy more precise."""
    heads: int = Field(default=256, ge=1, le=10**6)
    """Stories of these on which heads are measured and ablated (for text: windows); time grows with it."""
    shown: int = Field(default=2, ge=0, le=100)
    """Stories whose attention is saved for figures; 0: none. More make reports larger."""


class ModelConfig(Config, ABC):
    """What the configuration of every architecture says, so that nobody outside need know which one it is."""

    layers: int = Field(default=2, ge=1, le=1024)
    """Number of layers; time and memory grow with it."""
    causal: bool = True
    """Whether a token attends only to itself and earlier tokens; false: to the whole sequence."""
    readout: Literal["question", "mean"] = "question"
    """Where logits are read: at the question's last token, or from the mean over tokens."""
    training: ModelTraining = ModelTraining()
    """How the model is trained."""
    evaluation: HeadEvaluation = HeadEvaluation()
    """How many stories its answers and heads are evaluated on."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Random seed of a pipeline's model; the experiment's `seed` is that of its dictionaries."""

    renamed: ClassVar[dict[str, str]] = {"start": "init"}

    @property
    @abstractmethod
    def width(self) -> int:
        """Dimensions of the residual stream."""

    @property
    @abstractmethod
    def head_labels(self) -> tuple[str, ...]:
        """The kind of each head of a layer."""

    @abstractmethod
    def hooks(self) -> list[str]:
        """Every activation that such a model can record, by TransformerLens' names."""

    def sites(self) -> list[str]:
        """Those with one vector a token (and head): a dictionary can learn from them, and a forward pass edit them."""
        return [name for name in self.hooks() if not NO_ROWS.fullmatch(name)]

    @abstractmethod
    def cost(self, length: int) -> CostModel:
        """Of one model, for sequences of this many tokens."""

    @property
    def heads_per_layer(self) -> int:
        return len(self.head_labels)

    @abstractmethod
    def rate_multiplier(self, weight: str) -> float:
        """The learning rate of this weight, relative to the others."""


class Transformer(ModelConfig):
    """A pre-norm transformer: its sizes, its attention, its feed-forward layer and how its weights begin.

    This is a configuration. `start_models` makes models of it, `train_model` trains them.

    Attributes
    ----------
    head_width : int
        d_model / heads, the number of dimensions of a head.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = ub.Transformer(d_model=32, heads=4, attention=ub.Hopfield(iterations=2))
    >>> config.head_width, config.heads_per_layer
    (8, 4)
    >>> config.hooks()[:2]  # what `Models.forward` can record
    ['blocks.0.hook_resid_pre', 'blocks.0.hook_attn_out']
    """

    kind: Literal["transformer"] = "transformer"
    """The architecture's name in a configuration."""
    d_model: int = Field(default=64, ge=1, le=MOST)
    """Dimensions of the residual stream; cost grows with its square."""
    heads: int = Field(default=4, ge=1, le=MOST)
    """Attention heads in a layer, each d_model / heads wide; more heads are narrower. Must divide d_model."""
    d_ff: int = Field(default=256, ge=1, le=MOST)
    """Hidden units of each feed-forward layer; cost grows in proportion."""
    positions: Literal["alibi", "learned", "sinusoidal", "rotary"] = "alibi"
    """How positions enter: a bias on scores by distance, learned embeddings, fixed sinusoids, or rotated q and k."""
    init: Literal["scaled_attention", "torch"] = "scaled_attention"
    """torch: as torch's layers. scaled_attention: values and head outputs × 2, embeddings × 0.2, d_ff output × 0.1."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of embeddings, attention weights and hidden units dropped in training; raising it regularises more."""
    attention: AnyAttention = Softmax()
    """How heads mix tokens: `Softmax`, `Routed` or `Hopfield`."""
    feed_forward: AnyFeedForward = Dense()
    """The feed-forward layer of each block: `Dense` or `RoutedExperts`."""

    renamed_values: ClassVar[dict[str, dict[str, str]]] = {
        "positions": {"nearness": "alibi"},
        "init": {"carrying": "scaled_attention"},
    }

    @property
    def width(self) -> int:
        return self.d_model

    @property
    def head_labels(self) -> tuple[str, ...]:
        return (str(self.attention.to_dict()["kind"]),) * self.heads

    def hooks(self) -> list[str]:
        attention = [f"attn.{name}" for name in (*HEAD_HOOKS, *sorted(self.attention.hooks))]
        feed_forward = [f"mlp.{name}" for name in sorted(self.feed_forward.hooks)]
        names = [*BLOCK_HOOKS, *attention, *feed_forward]
        return [f"blocks.{layer}.{name}" for layer in range(self.layers) for name in names]

    def cost(self, length: int) -> CostModel:
        weights = self.layers * (4 * self.d_model**2 + 2 * self.d_model * self.d_ff)
        activations = self.layers * (12 * self.d_model + 3 * self.d_ff + 3 * self.heads * length)
        return CostModel(weights, activations, weights + self.layers * 2 * self.d_model * length)

    def rate_multiplier(self, weight: str) -> float:  # noqa: ARG002 (all learn alike)
        return 1.0

    @property
    def head_width(self) -> int:
        return self.d_model // self.heads

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        if self.d_model % self.heads:
            divisors = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
            raise ValueError(
                f"heads is {self.heads}, which does not divide d_model {self.d_model}; "
                f"accepted: {', '.join(map(str, divisors))}"
            )
        paired = {"rotary": ("head", self.head_width), "sinusoidal": ("d_model", self.d_model)}.get(self.positions)
        if paired and paired[1] % 2:
            raise ValueError(
                f"{self.positions} positions need pairs, and {paired[0]} is {paired[1]} wide; accepted: even"
            )
        self.attention.validate_heads(self.heads)
        self.feed_forward.validate_hidden(self.d_ff)
        return self


PUBLISHED = Transformer(
    d_model=128, heads=8, d_ff=256, causal=False, positions="sinusoidal", init="torch", readout="mean", dropout=0.1
)
"""The encoder of the source study `head-constraints`, in its table's first rows; (192, 16, 3 layers, d_ff 512) in the
others."""
