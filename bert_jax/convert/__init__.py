"""Reads and writes other projects' checkpoints, as NumPy arrays."""
