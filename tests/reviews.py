"""Made-up reviews, and short fine-tuning runs on them."""

import json
import random
from pathlib import Path

from tests import runs

GOOD, BAD = ["fine", "lovely", "great", "superb"], ["dull", "poor", "awful", "bad"]
PLAIN = ["the", "a", "film", "story", "was", "is", "very", "and", "it", "plot"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

CONFIG = """
extends = "finetune/text:recipe=tiny"

def get_config(config):
    config.model.hidden_size = 32
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 64
    config.model.max_position_embeddings = 32
    config.tokenizer.vocab_file = "FOLDER/vocab.txt"
    config.task.train_file = "FOLDER/train.jsonl"
    config.task.dev_file = "FOLDER/dev.jsonl"
    config.task.max_seq_length = 32
    config.model.num_hidden_layers = 1
    config.optimizer.learning_rate = 2e-2
    config.train.num_steps = 24
    config.train.batch_size = 16
    config.train.log_every = 1
    config.evaluate.batch_size = 16
    config.checkpoint.save_every = 12
    return config
"""


def write_reviews(folder):
    """Reviews whose one telling word decides, a vocabulary, and a config."""
    rng = random.Random(0)
    for name, count in (("train", 160), ("dev", 37)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(count):
                words = rng.choices(PLAIN, k=rng.randint(1, 20))
                label = rng.choice(["good", "bad"])
                telling = rng.choice(GOOD if label == "good" else BAD)
                words.insert(rng.randint(0, len(words)), telling)
                row = {"text": " ".join(words), "label": label}
                file.write(json.dumps(row) + "\n")
    pieces = [*SPECIAL, *PLAIN, *GOOD, *BAD]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "reviews.py").write_text(CONFIG.replace("FOLDER", str(folder)))
    return folder


def run(folder, workdir, *args, status=0):
    """Runs main here, on eight devices, and returns (stdout, stderr)."""
    return runs.run(folder / "reviews.py", workdir, *args, status=status)


def predictions(workdir):
    return (Path(workdir) / "predictions" / "dev.jsonl").read_bytes()
