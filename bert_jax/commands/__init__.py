"""Commands besides the modes, and what they share: runs, reports, plots."""

# Each has a module, whose `main` takes the arguments after the name.
NAMES = ("sweep", "cross-validate", "search")
