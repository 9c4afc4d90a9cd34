"""Activations of any Hugging Face model at named sites: read them, replace them in a run, or store them as shards."""
