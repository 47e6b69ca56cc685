"""A config: read, completed, checked. No JAX."""
