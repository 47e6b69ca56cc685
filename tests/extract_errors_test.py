"""--mode=extract: fields, rows and files that are wrong are refused in one line."""

import json

import pytest
import runs
from extracting import ROWS, extract

from bert_jax.training import setup


@pytest.mark.parametrize(
    ("flag", "wrong"),
    [("layers=(2,)", "there is no layer 2"), ("combine=max", "choose one of none, ")],
)
def test_a_wrong_field_is_one_line(plain, tmp_path, flag, wrong):
    assert wrong in extract(plain, tmp_path, ROWS, f"--config.predict.{flag}", status=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"txt": "a"}, 'in.jsonl:2: either "text" or "words" is required'),
        ([], "in.jsonl:2: a JSON object is required"),
    ],
)
def test_a_wrong_row_is_one_line_and_leaves_no_file(plain, tmp_path, row, wrong):
    rows = [ROWS[0], row]
    layer = "--config.predict.layers=-1"
    # What is left hangs on the kind of file, not on what is wrong with the row.
    for name in ("out.jsonl", "out.safetensors") if row == [] else ("out.jsonl",):
        assert wrong in extract(plain, tmp_path, rows, layer, name=name, status=2)


def test_the_output_is_checked_before_the_weights_and_is_not_the_input(
    plain, tmp_path, monkeypatch
):
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(ROWS[0]) + "\n")
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
        _, err = runs.here(*asks, f"--output={target}", status=2)
        assert wrong in err
    assert json.loads(source.read_text()) == ROWS[0]
