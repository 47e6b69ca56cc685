"""How the processes of a run find each other, and stop at the same step."""
