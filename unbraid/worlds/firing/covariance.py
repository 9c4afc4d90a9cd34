"""The random covariance matrix of seed 002: positive everywhere, and only just positive definite.

    C = (U + Uᵀ)/2 - 1.001·min(λ_min, 0)·I,  U uniform on (0, 1), λ_min the least eigenvalue of (U + Uᵀ)/2

At 512 features λ_min ≈ -9.1, so that the correlation of a pair is only about .5 / 9.6 ≈ .05.
"""

import numpy as np
from scipy.linalg import eigvalsh

from unbraid.randomness import stream


def covariance(features: int, seed: int) -> np.ndarray:
    """C, always the same for a world's seed."""
    uniform = stream(seed, "covariance").random((features, features))
    symmetric = (uniform + uniform.T) / 2
    least = eigvalsh(symmetric, subset_by_index=(0, 0))[0]
    return symmetric - 1.001 * min(least, 0.0) * np.eye(features)
