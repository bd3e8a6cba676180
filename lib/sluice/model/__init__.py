"""Transformer models: hyperparameters, weights, and layers as calls of kernels."""
