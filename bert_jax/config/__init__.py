"""Reads, completes and checks configs. No JAX."""
