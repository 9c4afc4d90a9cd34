"""Training: the settings, the optimiser, the step and the loop."""
