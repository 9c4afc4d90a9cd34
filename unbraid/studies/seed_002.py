"""What seed 002 claims: the superposition study with its baselines and its grid of autoencoders."""

from unbraid.studies.claims import Claim

SEED_002: tuple[Claim, ...] = ()
