"""The process and its surroundings: know nothing of a run."""
