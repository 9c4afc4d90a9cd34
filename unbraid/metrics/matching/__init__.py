"""Concept–feature matching: which learned features tell which planted concepts, and how well."""
