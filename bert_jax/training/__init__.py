"""A run: its step, and what surrounds it."""
