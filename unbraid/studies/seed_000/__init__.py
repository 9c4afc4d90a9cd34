"""What seed 000 claims: costs that push attention heads apart, and what they do to reasoning."""

from unbraid.studies.claims import Claim
from unbraid.studies.seed_000.beyond import BEYOND
from unbraid.studies.seed_000.constraints import CONSTRAINTS
from unbraid.studies.seed_000.sight import SIGHT

SEED_000: tuple[Claim, ...] = (*CONSTRAINTS, *SIGHT, *BEYOND)
