"""Documents and rows from the Hub, TFDS, Wikipedia, Python's documentation."""
