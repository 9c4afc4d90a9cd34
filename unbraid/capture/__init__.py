"""Activations of any Hugging Face model at named sites: read, replaced while the model runs, or kept as shards."""
