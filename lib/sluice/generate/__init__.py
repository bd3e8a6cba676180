"""Generation: the loop over records of logits, and the sampler."""
