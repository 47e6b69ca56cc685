"""Training: the step, and the code that opens, saves, evaluates and reports a run."""
