"""Named entities (section 5.3): CoNLL's files, windows, scores, and the task."""
