"""Commands besides the modes, and what they share: runs, reports, plots."""
