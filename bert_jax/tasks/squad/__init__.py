"""SQuAD (section 4.2 and 4.3): data, windows, answers, scores, and the task."""
