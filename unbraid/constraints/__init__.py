"""Costs on heads, one file each; listing one here is all it takes to configure and test it."""

from unbraid.constraints.constraint import Constraint, Constraints, costs, recorded_for

__all__ = ["Constraint", "Constraints", "costs", "recorded_for"]
