"""Learning from the user's own texts: evidence of their tokens, joined with the model's answer."""
