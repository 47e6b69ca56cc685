"""docs/fine_tuning.md, "Your own task in one file", verbatim."""

import random
import re
from pathlib import Path

import pytest

from bert_jax import main
from bert_jax.workdir import metrics

ROOT = Path(__file__).resolve().parents[2]
ASKS = {"DESC:manner": "how", "NUM:count": "many", "HUM:ind": "who"}
WORDS = ["did", "the", "a", "king", "river", "build", "find", "old"]


@pytest.fixture
def questions(tmp_path, monkeypatch):
    """The page's file next to data in its format, in the current folder."""
    (code,) = re.findall(
        r"```python\n(# questions\.py\n.*?)```",
        (ROOT / "docs" / "fine_tuning.md").read_text(),
        re.S,
    )
    (tmp_path / "questions.py").write_text(code)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *ASKS.values()]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    rng = random.Random(0)
    for name, count in (("train", 160), ("test", 30)):
        lines = []
        for _ in range(count):
            label = rng.choice(list(ASKS))
            words = [ASKS[label], *rng.choices(WORDS, k=rng.randint(1, 9))]
            lines.append(f"{label} {' '.join(words)}\n")
        (tmp_path / f"{name}.label").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL = (
    "--config.model.hidden_size=32",
    "--config.model.num_attention_heads=2",
    "--config.model.intermediate_size=64",
    "--config.model.num_hidden_layers=1",
    "--config.model.max_position_embeddings=16",
    "--config.task.max_seq_length=16",
    "--config.optimizer.learning_rate=0.02",
    "--config.train.num_steps=24",
    "--config.tokenizer.vocab_file=vocab.txt",
)


@pytest.mark.usefixtures("one_device")
def test_file_works(questions, capsys):
    command = ["--config=questions.py", "--workdir=run", *SMALL]
    assert main.main(command) == 0, capsys.readouterr().err
    assert metrics.read_metrics(questions / "run", "dev")[-1]["accuracy"] > 0.8
    assert "majority baseline" in capsys.readouterr().out
    lines = (questions / "run" / "predictions" / "dev.jsonl").read_text().splitlines()
    assert len(lines) == 30 and '"label": "' in lines[0]
    (questions / "row.jsonl").write_text('{"text": "who did find the river"}\n')
    assert main.main([*command, "--mode=predict", "--input=row.jsonl"]) == 0
    assert '"HUM"' in capsys.readouterr().out
    assert main.main([*command, "--mode=export", "--output=model"]) == 0
    assert '"2": "NUM"' in (questions / "model" / "config.json").read_text()
