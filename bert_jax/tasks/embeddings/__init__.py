"""Vectors of texts whose cosine measures the similarity of the texts."""
