"""Other people's checkpoints: names and shapes, both ways. NumPy in, NumPy out."""
