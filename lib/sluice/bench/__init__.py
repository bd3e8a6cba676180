"""Benchmarks (bin/sluice-bench): models of random weights, timed runs, the machine's limits."""
