"""Hugging Face folders that are damaged or do not fit: one line names the problem."""

import numpy as np
import pytest

from bert_jax import pretrained
from bert_jax.convert import weights
from bert_jax.errors import UserError


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def no_config(folder):
    (folder / "config.json").unlink()


def pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "model.safetensors: .*damaged: export or copy it again; "),
        (no_config, "config.json: cannot be read"),
        (pickle, "pytorch_model.bin: (needs torch|.*or is damaged: copy it again)"),
    ],
)
def test_damaged_files(make_folder, damage, message):
    folder = make_folder()
    damage(folder)
    assert_one_line(message, lambda: pretrained.load(folder).tokenizer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "deberta"}, "model_type is 'deberta'"),
        ({"hidden_size": 16}, r"\(50, 12\).*\(50, 16\)|does not divide"),
    ],
)
def test_configs_that_do_not_go_with_the_weights(make_folder, fields, message):
    folder = make_folder(fields=fields)
    assert_one_line(message, lambda: weights.read_weights(folder))


def not_a_number(tensors):
    tensors["bert.pooler.dense.weight"][3, 4] = np.nan


def test_damaged_tensor(make_folder):
    folder = make_folder(change=not_a_number)
    message = "bert.pooler.dense.weight has NaN"
    assert_one_line(message, lambda: weights.read_weights(folder))


def test_vocabulary_of_another_size(make_folder):
    folder = make_folder()
    with (folder / "vocab.txt").open("a") as file:
        file.write("more\n")
    assert_one_line("51 pieces.*50", lambda: pretrained.load(folder).tokenizer)


def test_folder_that_is_missing(tmp_path):
    assert_one_line("no such folder", lambda: pretrained.load(tmp_path / "x"))
    assert_one_line("no weights", lambda: pretrained.load(tmp_path))


def assert_one_line(message, function):
    with pytest.raises(UserError, match=message) as caught:
        function()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_unfinished_run_is_no_folder_of_weights(tmp_path):
    for name in ("config.json", "checkpoints"):
        (tmp_path / name).write_text("{}")
    assert_one_line("is this a run's folder", lambda: pretrained.load(tmp_path))
