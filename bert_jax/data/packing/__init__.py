"""Several texts in a row."""
