"""How fast the engine is: models of random weights, timed runs, and what the machine could do
(bin/sluice-bench).
"""
