"""Ours against named rivals, as ratios taken in one run: `make bench`, or `make bench ONLY=sampling`."""
