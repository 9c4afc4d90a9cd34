"""The gauge transformer: tokens hold Gaussian beliefs in frames of their own, heads are irreps of SO(3) (seed 001)."""

from unbraid.models.gauge.irreps import Family, families
from unbraid.models.gauge.settings import FreeEnergy, Gauge
from unbraid.models.gauge.transformer import GaugeModels

__all__ = ["Family", "FreeEnergy", "Gauge", "GaugeModels", "families"]
