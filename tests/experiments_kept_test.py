"""What commands have kept is checked when it is read again."""

import json
import math

import pytest

from bert_jax.errors import UserError
from experiments.lib import kept

GOOD = {"arguments": [], "scores": {"dev": {"accuracy": 0.5}}}
KIND = {
    "arguments": [str],
    "scores": {"dev": {"accuracy": float}, str: {"accuracy": float}},
}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"no JSON", "not JSON"),
        (b"\x80\x00\xff", "not JSON"),
        (json.dumps(GOOD).encode()[:-9], "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not a JSON object, but a list"),
        (b"{}", "damaged: it has no "),
        (b'{"arguments": []}', "damaged: it has no scores"),
        (b'{"arguments": 3, "scores": {}}', "arguments is 3, not a list"),
        (b'{"arguments": [3], "scores": {}}', "arguments[0] is 3, not a text"),
        (b'{"arguments": [], "scores": {}}', "it has no scores.dev"),
        (b'{"arguments": [], "scores": []}', "scores is [], not an object"),
        (b'{"arguments": [], "scores": {"dev": {}}}', "no scores.dev.accuracy"),
        *(
            (
                b'{"arguments": [], "scores": {"dev": {"accuracy": %s}}}' % value,
                "scores.dev.accuracy is ",
            )
            for value in (b'"0.5"', b"null", b"true", b"1" + b"0" * 400, b"1e301")
        ),
    ],
    ids=range(18),
)
def test_a_damaged_file_is_one_line(tmp_path, content, words):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as found:
        kept.read(path, KIND)
    said = str(found.value)
    assert said.startswith(f"{path}: ") and words in said
    assert said.endswith("; delete it, and the same command makes it again")


@pytest.mark.parametrize("value", [0, 1, 0.5, -1e299, math.nan, math.inf])
def test_any_number_is_one(tmp_path, value):
    path = tmp_path / "result.json"
    good = {"arguments": ["a"], "scores": {"dev": {"accuracy": value, "more": 1}}}
    path.write_text(json.dumps(good))
    assert repr(kept.read(path, KIND)) == repr(good)


def test_a_folder_or_none_in_its_place(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"cannot be read .*; delete it"):
            kept.read(path, KIND)


def test_whole_numbers(tmp_path):
    path = tmp_path / "note.json"
    path.write_text('{"batches": 1.5}')
    with pytest.raises(UserError, match=r"batches is 1\.5, not a whole number"):
        kept.read(path, {"batches": int})


def test_lists_of_a_length(tmp_path):
    path = tmp_path / "part.json"
    kind = {"accuracy": (float,) * 3, "baselines": {str: float}}
    good = {"accuracy": [1, 0.5, 0], "baselines": {"a": 1}}
    assert kept.check(good, kind, path) is good
    for wrong, words in (
        ({"accuracy": [1, 2]}, "accuracy has 2 values, not 3"),
        ({"accuracy": [1, 2, "3"]}, r"accuracy\[2\] is '3', not a number"),
        ({"baselines": {"a": []}}, r"baselines.a is \[\], not a number"),
    ):
        with pytest.raises(UserError, match=f"damaged: {words}; delete it"):
            kept.check(good | wrong, kind, path)
