"""The folder of a run: what it is, its numbers and its checkpoints."""
