"""Changes to training, one file each. See docs/extending.md."""
