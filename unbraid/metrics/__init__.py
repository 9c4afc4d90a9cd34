"""Pure functions of arrays: what a dictionary recovered, how sparsely it fires, how well it reconstructs."""
