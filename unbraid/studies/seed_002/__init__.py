"""What seed 002 claims: the superposition study with its baselines, its pictures and its grid of autoencoders."""

from unbraid.studies.claims import Claim
from unbraid.studies.seed_002.autoencoders import AUTOENCODERS
from unbraid.studies.seed_002.baselines import BASELINES
from unbraid.studies.seed_002.labels import LABELS
from unbraid.studies.seed_002.pictures import PICTURES
from unbraid.studies.seed_002.probabilistic import PROBABILISTIC

SEED_002: tuple[Claim, ...] = (*BASELINES, *PICTURES, *AUTOENCODERS, *LABELS, *PROBABILISTIC)
