"""A run's folder: its config, metrics, checkpoints and lock."""
