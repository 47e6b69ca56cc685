"""A tokenizer.json of others: what its rules may do to a text."""

import json
import shutil
from pathlib import Path

import pytest

from bert_jax import main, tokenization
from bert_jax.errors import UserError

MINI = Path(__file__).parents[2] / "pretrained" / "mini"


def with_rules(folder: Path, **rules: object) -> Path:
    """A copy of pretrained/mini whose tokenizer.json has other rules."""
    shutil.copytree(MINI, folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | rules))
    return path


@pytest.mark.parametrize("times", [1, 3])
def test_a_normalizer_that_writes_too_much_is_refused(tmp_path, times):
    rule = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    rules = {"type": "Sequence", "normalizers": [rule] * times}
    with pytest.raises(UserError, match=f"text {1000**times:,} times as long"):
        tokenization.load(with_rules(tmp_path / "much", normalizer=rules))
    rule["content"] = "b" * 3
    tokenizer = tokenization.load(with_rules(tmp_path / "little", normalizer=rules))
    assert tokenizer.normalizer.normalize_str("a.") == "bbb."


def test_a_pattern_that_does_not_end_is_one_line(tmp_path, capfd):
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Removed"}
    path = with_rules(tmp_path / "model", pre_tokenizer=pattern | {"invert": False})
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"text": "a" * 1000 + "!"}))
    files = f"--input={source}", f"--output={target}"
    model = f"--config.init_from={path.parent}"
    assert main.main(["--mode=predict", model, *files]) == 2
    lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("error: ")]
    assert len(lines) == 1 and "the tokenizer gave up on a text" in lines[0]
    assert "a vocab.txt" in lines[0] and not target.exists()
