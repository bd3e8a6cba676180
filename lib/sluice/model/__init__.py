"""Transformers: hyperparameters, weights, and the layers as calls of kernels."""
