"""Score dictionaries: against planted truth, against factors, on a language model."""
