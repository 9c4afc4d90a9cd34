"""How well a linear probe says a concept from raw activations: what recovery is held against.

w, b minimise  Σ over rows of log(1 + e^(-y (w·x + b)))  +  ½ |w|²,   x standardised, y = ±1

for every concept, by Newton's steps; its score w·x + b is then cut where φ is largest. All on the rows to fit on; φ is
measured on the others (see `association`).
"""

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float
from unbraid.metrics.association import Best, associate, best

STEPS, CLOSE = 30, 1e-4


def probe_concepts(x: Float[np.ndarray, "n d"], concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"]) -> Best:
    """φ of each concept's own probe, numbered as the concept is; NaN for a concept that is not judged."""
    rows = standardise(x.astype(np.float64), fit)
    found = np.full(concepts.shape[1], np.nan)
    for number in range(concepts.shape[1]):
        concept = concepts[:, [number]]
        scores = rows @ fit_probe(rows[fit], concept[fit, 0])
        found[number] = best(associate(sparse.csr_array(scores[:, None]), concept, fit)).phi[0]
    return Best(np.arange(concepts.shape[1]), found)


def standardise(x: Float[np.ndarray, "n d"], fit: Bool[np.ndarray, "n"]) -> Float[np.ndarray, "n e"]:
    """To mean 0 and variance 1 on the rows fitted, constant columns to 0; and a last column of ones."""
    middle, spread = x[fit].mean(0), x[fit].std(0)
    scaled = (x - middle) / np.where(spread > 0, spread, 1)
    return np.column_stack([scaled, np.ones(len(x))])


def fit_probe(rows: Float[np.ndarray, "b e"], known: Bool[np.ndarray, "b"]) -> Float[np.ndarray, "e"]:
    """The weights, the last one the bias; Newton's step is halved until it helps."""
    penalty = np.append(np.ones(rows.shape[1] - 1), 1e-6)  # next to none on the bias: enough where one class is empty
    weights, signs = np.zeros(rows.shape[1]), np.where(known, 1.0, -1.0)

    def loss(at: np.ndarray) -> float:
        return float(np.logaddexp(0, -signs * (rows @ at)).sum() + penalty @ at**2 / 2)

    now = loss(weights)
    for _ in range(STEPS):
        chance = 0.5 + 0.5 * np.tanh(rows @ weights / 2)
        slope = rows.T @ (chance - known) + penalty * weights
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        while (then := loss(weights - step)) > now and np.abs(step).max() > CLOSE:
            step = step / 2
        weights, now = weights - step, then
        if np.abs(step).max() <= CLOSE:
            break
    return weights
