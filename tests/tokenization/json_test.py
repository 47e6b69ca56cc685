"""A tokenizer.json of another program."""

import json
import shutil
from pathlib import Path

from bert_jax import tokenization

MINI = Path(__file__).parents[2] / "pretrained" / "mini"


def with_rules(folder: Path, **rules: object) -> Path:
    """A copy of pretrained/mini whose tokenizer.json has other rules."""
    shutil.copytree(MINI, folder, dirs_exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | rules))
    return path


def test_pieces_are_the_same_each_time(tmp_path):
    """Whatever dropout a vocabulary was made with."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "aa"]
    model = {"type": "BPE", "dropout": 0.5, "unk_token": "[UNK]", "merges": ["a a"]}
    model["vocab"] = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = tokenization.load(
        with_rules(tmp_path, model=model, post_processor=None)
    )
    cuts = {tuple(tokenizer.encode("aa").tokens) for _ in range(50)}
    assert cuts == {("[CLS]", "aa", "[SEP]")}
