"""Changes to what is trained, one file each; docs/extending.md."""
