"""Evaluate dictionaries on a language model: the loss they recover, sparse probing, first-letter absorption."""
