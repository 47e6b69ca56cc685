"""The process and its environment, independent of any run."""
