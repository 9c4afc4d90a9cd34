"""Judge dictionaries on a real model: what it loses when they speak for it, and what their features tell."""
