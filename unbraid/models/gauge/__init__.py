"""The gauge transformer: tokens hold Gaussian beliefs in frames of their own, heads are irreps of SO(3)."""

from unbraid.models.gauge.config import Family, FreeEnergy, Gauge, families
from unbraid.models.gauge.transformer import GaugeModels

__all__ = ["Family", "FreeEnergy", "Gauge", "GaugeModels", "families"]
