"""Taught models on fresh stories: whether they answer, where each head looks, and what it is needed for."""

from unbraid.examining.examine import Examination, Examining, examine
from unbraid.examining.showing import Shown, show

__all__ = ["Examination", "Examining", "Shown", "examine", "show"]
