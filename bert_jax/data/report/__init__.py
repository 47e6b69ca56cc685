"""What a prepared folder holds: a summary, and a page for a browser."""
