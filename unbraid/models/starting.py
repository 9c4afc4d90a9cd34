"""How weights start: as torch's own layers do, but for what attention carries.

linear   weight and bias uniform in ±1/√inputs        norm   scale 1, shift 0        embedding   N(0, 1)

`carrying`: values and the heads' output are twice as large, words a fifth, and the weights by which the
hidden layer writes a tenth. Then what a head reads is heard beside the word that stands there, and a later layer can
look for it: else a model sits for a thousand steps where it knows words alone.
"""

import numpy as np

Start = dict[str, np.ndarray]
"""The weights of one member as they start, by name."""
CARRIED, WORDS, HIDDEN = 2.0, 0.2, 0.1
"""What `carrying` multiplies values and the heads' output by, words, and the weights by which hidden layers write."""


def uniform(rng: np.random.Generator, inputs: int, *shape: int) -> np.ndarray:
    """What torch gives a linear layer of so many inputs."""
    bound = inputs**-0.5
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def norm(name: str, width: int) -> Start:
    return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}
