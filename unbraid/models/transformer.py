"""m transformers of one shape, on one page.

    x ← embed(tokens) + positions
    x ← x + attention(norm x)        x ← x + feed_forward(norm x)        for each layer
    answer = read(norm x)            at the question's last token, or from the mean over tokens

With sinusoidal positions the embedding is multiplied by √d, as in Vaswani et al. (2017). Queries, keys, values and the
heads' output have no bias.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from unbraid.axes import Float, Int, Tensor
from unbraid.models.block import Passing, pass_layer
from unbraid.models.dropout import Dropout
from unbraid.models.layers import look_up
from unbraid.models.models import Models, Passed
from unbraid.models.positions import waves
from unbraid.models.recording import recorder
from unbraid.models.settings import Transformer


@dataclass(frozen=True)
class Transformers(Models):
    """Pre-norm transformers that look by softmax, routed or by Hopfield retrieval."""

    settings: Transformer

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        record: Collection[str] = (),
        silence: Iterable[tuple[int, int]] = (),
        step: int | None = None,
    ) -> Passed:
        sight = self.sight(tokens, self.settings.positions == "nearness")
        dropout = (
            Dropout(self.settings.dropout, self.seeds, step) if step is not None and self.settings.dropout else None
        )
        passing = Passing(
            self.settings,
            self.weights,
            sight,
            recorder(self.settings, frozenset(record)),
            self.audible(silence),
            dropout,
        )
        x = self._embed(tokens)
        x = x if dropout is None else dropout.at("", "embed", x)
        for layer in range(self.settings.layers):
            x = pass_layer(layer, x, passing)
        return Passed(passing.norm("final_norm", x), sight, passing.recorder.kept, passing.costs)

    @property
    def words(self) -> int:
        return self.weights["embed"].shape[1]

    def _embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "m b t d"]:
        x, length = look_up(self.weights["embed"], tokens), tokens.shape[1]
        match self.settings.positions:
            case "learned":
                return x + self.weights["positions"][:, None, :length]
            case "sinusoidal":
                width = self.settings.d_model
                return x * width**0.5 + waves(self.length, width)[:length].to(x.dtype)
            case "rotary" | "nearness":
                return x
