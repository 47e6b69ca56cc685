"""Processes of a run: finding each other, and stopping at the same step."""
