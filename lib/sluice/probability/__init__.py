"""Probabilities corrected without labels or fitted to labelled texts."""
