"""Training: the step, and what opens, saves, evaluates and reports a run."""
