"""--mode=extract on a finished run: forms, order, cuts, a killed run, errors."""

import collections
import json
import re
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict
from safetensors import safe_open
from safetensors.numpy import load_file

from bert_jax import pretrained
from bert_jax.extract import Extractor
from bert_jax.training import setup
from tests import runs
from tests.close import assert_close
from tests.micro import bert_config, read_rows, write_rows

TEXTS = ["the quick brown fox jumps", "a dog", "seven cats watch it go", "the", ""]
ROWS = [{"text": text} for text in TEXTS]
ROWS[1]["text_b"] = "while seven cats go"
pytestmark = pytest.mark.usefixtures("one_device")


def extract(plain, tmp_path, rows, *flags, name="out.jsonl", status=0):
    target = tmp_path / name
    source = write_rows(tmp_path / "in.jsonl", rows)
    _, err = runs.here(
        *("--mode=extract", f"--workdir={plain}", f"--input={source}"),
        *(f"--output={target}", *flags),
        status=status,
    )
    if status:
        *notes, error = err.splitlines()
        assert error.startswith("error: "), err
        assert all(", but the run has " in note for note in notes)
        assert not target.exists()
        return error
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []
    return target


def google(rows, bert, layer_indexes, max_length=32):
    """The lines of extract_features.py, for what the model gives for one row alone."""
    lines = []
    for unique_id, row in enumerate(rows):
        tokens_a, tokens_b = (
            bert.tokenizer.encode(row.get(name) or "", add_special_tokens=False).tokens
            for name in ("text", "text_b")
        )
        while tokens_b and len(tokens_a) + len(tokens_b) > max_length - 3:
            (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()
        if not tokens_b:
            tokens_a = tokens_a[: max_length - 2]
        tokens = ["[CLS]", *tokens_a, "[SEP]"]
        types = [0] * len(tokens)
        if tokens_b:
            tokens += [*tokens_b, "[SEP]"]
            types += [1] * (len(tokens_b) + 1)
        ids = [[bert.tokenizer.token_to_id(token) for token in tokens]]
        states = bert.apply(ids, [[1] * len(tokens)], [types])["hidden_states"]
        all_layers = [np.asarray(state)[0] for state in states[1:]]
        output = collections.OrderedDict(linex_index=unique_id)
        output["features"] = []
        for i, token in enumerate(tokens):
            feature = collections.OrderedDict(token=token, layers=[])
            for index in layer_indexes:
                values = [round(float(x), 6) for x in all_layers[index][i]]
                layer = collections.OrderedDict(index=index, values=values)
                feature["layers"].append(layer)
            output["features"].append(feature)
        lines.append(json.dumps(output))
    return lines


def flat(line):
    """A line without its values, and its values."""
    values = []

    def taken(match):
        values.append(json.loads(match[1]))
        return "[]"

    rest = re.sub(r"(?<=\"values\":)(\[[^]]*\])", taken, line.replace(": ", ":"))
    return rest.replace(", ", ","), np.array(values)


@pytest.mark.slow
def test_lines_are_those_of_extract_features(plain, tmp_path):
    rows = [*ROWS, {"text": "the dog " * 40}, {"text": "fox " * 30, "text_b": "a " * 9}]
    target = extract(plain, tmp_path, rows, "--config.predict.layers=(-1,)")
    found = target.read_text().splitlines()
    wanted = google(rows, pretrained.load(plain), [-1])
    for line, theirs in zip(found, wanted, strict=True):
        (form, values), (their_form, their_values) = flat(line), flat(theirs)
        assert form == their_form
        assert_close(values, their_values)
        assert all(len(x) <= 9 for x in re.findall(r"-?\d+\.\d+", line) if "e" not in x)
    longest = [len(json.loads(line)["features"]) for line in found[-2:]]
    assert longest == [32, 32]


def test_words_one_vector_each_and_what_is_cut_is_counted(plain, tmp_path, caplog):
    rows = [
        {"words": ["the", "\u200b", "dog's"]},
        {"words": ["quick"] * 50},
        {"text": "A dog, a fox."},
        {"words": []},
    ]
    target = extract(plain, tmp_path, rows, "--config.predict.vectors=words_mean",
                     "--config.predict.layers=-1")  # fmt: skip
    found = read_rows(target)
    names = [[feature["token"] for feature in row["features"]] for row in found]
    assert names[0] == ["the", "\u200b", "dog's"]
    assert 0 < len(names[1]) < 50 and set(names[1]) == {"quick"}
    assert names[2:] == [["A", "dog", ",", "a", "fox", "."], []]
    (message,) = (r.message for r in caplog.records if "cut" in r.message)
    assert message == "texts cut at the model's 32 positions: 1"


@pytest.mark.slow
def test_extract_one_vector_for_a_text(plain, tmp_path):
    both = ("--config.predict.layers=(0, 1)", "--config.predict.combine=concatenated")
    bert = pretrained.load(plain)
    for unit in ("cls", "mean"):
        target = extract(plain, tmp_path, ROWS, *both,
                         f"--config.predict.vectors={unit}",
                         name=f"{unit}.safetensors")  # fmt: skip
        tensors = load_file(target)
        assert tensors.keys() == {"vectors", "offsets"}
        assert tensors["vectors"].shape == (5, 64)
        np.testing.assert_array_equal(tensors["offsets"], np.arange(6))
        encoding = bert.tokenizer.encode(TEXTS[0])
        ids = [encoding.ids]
        states = bert.apply(ids, np.ones_like(ids), np.zeros_like(ids))["hidden_states"]
        joined = np.concatenate(states[:2], axis=-1)[0]
        wanted = joined[0] if unit == "cls" else joined[1:-1].mean(axis=0)
        assert_close(tensors["vectors"][0], wanted)
    assert not tensors["vectors"][4].any()
    with safe_open(target, "np") as file:
        expected = {"layers": "[0, 1]", "combine": "concatenated", "vectors": "mean"}
        assert file.metadata() == expected


def of_fields(model, tokenizer, **fields):
    predict = {"layers": (-1,), "combine": "none", "vectors": "pieces", **fields}
    return Extractor(ConfigDict({"predict": predict}), model, tokenizer)


def test_extract_of_a_causal_model_reads_the_last_separator(plain):
    tokenizer = pretrained.load(plain).tokenizer
    size = tokenizer.get_vocab_size()
    model = bert_config(vocab_size=size, num_hidden_layers=1, causal=True)
    parsed = of_fields(model, tokenizer, vectors="cls").parse_row(ROWS[0])
    assert parsed.info == ["[SEP]"]
    owners = parsed.columns["owners"]
    assert np.flatnonzero(owners == 0).tolist() == [len(owners) - 1]


WRONG = (-1, 'in.jsonl:2: either "text" or "words" is required')


@pytest.mark.parametrize(
    ("name", "layer", "said"),
    [
        ("out.jsonl", 2, "there is no layer 2"),
        pytest.param("out.jsonl", *WRONG, marks=pytest.mark.slow),
        pytest.param("out.safetensors", *WRONG, marks=pytest.mark.slow),
    ],
)
def test_layer_or_row_that_is_wrong_leaves_no_file(plain, tmp_path, name, layer, said):
    layers = f"--config.predict.layers=({layer},)"
    rows = [ROWS[0], {"txt": "a"}]
    assert said in extract(plain, tmp_path, rows, layers, name=name, status=2)


def test_output_is_checked_before_the_weights_and_is_not_the_input(
    plain, tmp_path, monkeypatch
):
    source = Path(write_rows(tmp_path / "in.jsonl", ROWS[:1]))
    (tmp_path / "link.jsonl").symlink_to(source)

    def refuse(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(setup, "restored_params", refuse)
    asks = ("--mode=extract", f"--workdir={plain}", f"--input={source}",
            "--config.predict.layers=-1")  # fmt: skip
    for target, wrong in (
        (source, "in.jsonl: is --input, whose texts would be lost"),
        (tmp_path / "link.jsonl", "link.jsonl: is --input"),
        (tmp_path / "none" / "out.jsonl", "must be a file in an existing folder"),
    ):
        assert wrong in runs.here(*asks, f"--output={target}", status=2)[1]
    assert read_rows(source) == ROWS[:1]
