"""BERT in JAX and Flax, from raw text to exported weights."""
