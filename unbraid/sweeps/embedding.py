"""A picture of samples in the plane by t-SNE: scikit-learn's, with its defaults but for what is set here."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from unbraid.config import Record
from unbraid.randomness import stream


class Tsne(Record):
    """Points that are near where samples are near; starts from the first two principal components, scaled down."""

    kind: Literal["tsne"] = "tsne"
    perplexity: float = Field(default=30.0, gt=0)
    iterations: int = Field(default=1000, ge=250)

    def points(self, x: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        from sklearn.manifold import TSNE

        search = TSNE(
            perplexity=self.perplexity,
            init="pca",
            max_iter=self.iterations,
            random_state=int(stream(seed, "embedding").integers(1 << 32)),
            n_jobs=1,
        )
        return np.asarray(search.fit_transform(x), dtype=np.float32)
