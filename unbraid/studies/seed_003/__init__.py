"""What seed 003 claims: nine mechanisms for training dictionaries."""

from unbraid.studies.claims import Claim
from unbraid.studies.seed_003.on_a_model import ON_A_MODEL
from unbraid.studies.seed_003.planted import PLANTED

SEED_003: tuple[Claim, ...] = (*PLANTED, *ON_A_MODEL)
