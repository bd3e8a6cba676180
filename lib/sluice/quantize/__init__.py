"""Weights in other types: which tensor gets which, and the copy of a file."""
