"""A tokenizer.json of others: what its rules may do to a text."""

import base64
import json
import shutil
import struct
from pathlib import Path

import pytest

from bert_jax import main, tokenization
from bert_jax.errors import UserError

MINI = Path(__file__).parents[2] / "pretrained" / "mini"


def with_rules(folder: Path, **rules: object) -> Path:
    """A copy of pretrained/mini whose tokenizer.json has other rules."""
    shutil.copytree(MINI, folder, dirs_exist_ok=True)
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


REPLACE = {"type": "Replace", "pattern": {"Regex": "(?=.)"}, "content": "b"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
MODEL = {"vocab": {"a": 0}, "unk_token": "[X]", "max_input_chars_per_word": 100}


@pytest.mark.parametrize("count", [2, 30])
@pytest.mark.parametrize(
    ("part", "steps", "rule"),
    [
        ("normalizer", "normalizers", REPLACE),  # writes between the characters
        ("normalizer", "normalizers", {"type": "ByteLevel"}),
        ("pre_tokenizer", "pretokenizers", BYTES | {"use_regex": False}),
    ],
)
def test_rules_that_double_a_text_are_counted(tmp_path, part, steps, rule, count):
    rules = {part: {"type": "Sequence", steps: [rule] * count}}
    path = with_rules(tmp_path / "model", **rules)
    if count == 2:
        assert tokenization.load(path).encode("é").ids
        return
    with pytest.raises(UserError, match="times as long"):
        tokenization.load(path)


def test_a_table_of_characters_that_writes_too_much_is_refused(tmp_path):
    trie = struct.pack("<257I", 1024, *[0] * 256)
    for length, refused in ((18, False), (1000, True)):
        table = base64.b64encode(trie + b"a" * length + b"\0").decode()
        rule = {"type": "Precompiled", "precompiled_charsmap": table}
        path = with_rules(tmp_path / str(length), normalizer=rule)
        if not refused:  # as SentencePiece's rules are written (DeBERTa-v3)
            spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
            both = {"type": "Sequence", "normalizers": [rule, spaces]}
            before = {
                "type": "Metaspace",
                "replacement": "▁",
                "prepend_scheme": "always",
            }
            path = with_rules(tmp_path / "all", normalizer=both, pre_tokenizer=before)
        if refused:
            with pytest.raises(UserError, match="may make a text 1,001 times as long"):
                tokenization.load(path)
        else:
            tokenization.load(path)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"model": MODEL | {"type": "WordLevel"}}, "fails at an unknown character"),
        ({"normalizer": {"type": "Precompiled"}}, "not a tokenizer.json"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
            "not a tokenizer.json",
        ),
    ],
)
def test_a_model_that_would_fail_at_a_text_is_refused(tmp_path, rules, expected):
    path = with_rules(tmp_path / "model", **rules)
    with pytest.raises(UserError, match=f"{path}: .*{expected}"):
        tokenization.load(path)


def test_a_word_that_would_take_hours_is_unknown(tmp_path):
    path = with_rules(tmp_path / "model")
    form = json.loads(path.read_text())
    form["model"]["max_input_chars_per_word"] = 100_000
    path.write_text(json.dumps(form))
    with pytest.raises(UserError, match="max_input_chars_per_word=100,000 of"):
        tokenization.load(path)


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
