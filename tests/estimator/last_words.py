"""Small texts of two classes, for estimators."""

import random

WORDS = ["the", "quick", "brown", "jumps", "over", "a", "dog", "while", "go"]
NO_DROPOUT = {f"model.{x}_dropout_prob": 0.0 for x in ("hidden", "attention_probs")}


def rows(count: int) -> list[dict]:
    """Texts whose last word shows their class."""
    rng, found = random.Random(0), []
    for _ in range(count):
        label = rng.choice([3, 10])
        words = [*rng.choices(WORDS, k=4), "fox" if label == 3 else "cat"]
        found.append({"text": " ".join(words), "label": label})
    return found
