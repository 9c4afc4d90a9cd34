"""What seed 001 claims: KL attention between Gaussian beliefs, and why its low-spin heads look everywhere alike."""

from unbraid.studies.claims import Claim
from unbraid.studies.seed_001.language import LANGUAGE
from unbraid.studies.seed_001.remedies import REMEDIES
from unbraid.studies.seed_001.uniformity import UNIFORMITY

SEED_001: tuple[Claim, ...] = (*UNIFORMITY, *REMEDIES, *LANGUAGE)
