"""How points lie in the plane: evenly, or in clusters.

evenness = entropy of the shares of points in the cells of a square grid, over that of as many uniform points in the
           same convex hull: 1 is as even as chance fills the hull, lower is less even
hopkins  = Σ u² / (Σ u² + Σ w²), u from uniform points in the hull to the nearest point, w from as many of the points to
           their nearest other: ½ for uniform points, 1/7 for a square lattice, towards 1 for clusters
clusters = how many HDBSCAN finds, the leaves of its tree, and the share of points in them: uniform points have some too
"""

import numpy as np

from unbraid.axes import Float

Points = Float[np.ndarray, "b 2"]

PER_CELL, DRAWS = 8, 16
"""Points a cell on average, and how often uniform points are drawn to compare with."""
SMALLEST = 5
"""Fewer points than these are no cluster."""


def evenness(points: Points, rng: np.random.Generator) -> float:
    """Occupancy entropy of the points over that of uniform ones in their hull: 1 is as even as chance."""
    side = max(2, round(float(np.sqrt(len(points) / PER_CELL))))
    low, extent = points.min(0), float(np.ptp(points, axis=0).max())
    drawn = [occupancy_entropy(uniform_in_hull(points, len(points), rng), low, extent, side) for _ in range(DRAWS)]
    return occupancy_entropy(points, low, extent, side) / float(np.mean(drawn))


def occupancy_entropy(points: Points, low: Float[np.ndarray, "2"], extent: float, side: int) -> float:
    """-Σ s·log s over the shares s of points in side × side cells of a square that begins at `low`."""
    cells = np.clip(((points - low) / extent * side).astype(int), 0, side - 1)
    shares = np.bincount(cells[:, 0] * side + cells[:, 1]) / len(points)
    kept = shares[shares > 0]
    return float(-(kept * np.log(kept)).sum())


def hopkins(points: Points, rng: np.random.Generator) -> float:
    """½ for uniform points, towards 1 for clusters; a tenth of the points is drawn."""
    from scipy.spatial import cKDTree  # pyright: ignore[reportAttributeAccessIssue]

    tree, amount = cKDTree(points), max(1, len(points) // 10)
    from_anywhere = tree.query(uniform_in_hull(points, amount, rng))[0]
    chosen = points[rng.choice(len(points), amount, replace=False)]
    from_points = tree.query(chosen, k=2)[0][:, 1]
    total, own = float((from_anywhere**2).sum()), float((from_points**2).sum())
    return total / (total + own)


def clusters(points: Points) -> tuple[int, float]:
    """How many, and the share of points in one."""
    from sklearn.cluster import HDBSCAN

    if len(points) < SMALLEST:
        return 0, 0.0
    search = HDBSCAN(min_cluster_size=SMALLEST, cluster_selection_method="leaf", copy=True)  # pyright: ignore[reportArgumentType]
    found = search.fit(points).labels_
    return len(set(found[found >= 0].tolist())), float((found >= 0).mean())


def uniform_in_hull(points: Points, amount: int, rng: np.random.Generator) -> Float[np.ndarray, "amount 2"]:
    """Uniform in the convex hull: a triangle of it by its area, then a place in the triangle."""
    from scipy.spatial import ConvexHull, Delaunay  # only embeddings ask, and every command would wait for it

    corners = points[ConvexHull(points).vertices].astype(float)
    triangles = corners[Delaunay(corners).simplices]
    first, second = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    areas = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    chosen = rng.choice(len(areas), amount, p=areas / areas.sum())
    along = rng.random((amount, 2))
    along = np.where(along.sum(1, keepdims=True) > 1, 1 - along, along)  # fold the parallelogram onto the triangle
    return triangles[chosen, 0] + along[:, :1] * first[chosen] + along[:, 1:] * second[chosen]
