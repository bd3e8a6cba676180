"""Text generation: the decode loop, and the sampler."""
