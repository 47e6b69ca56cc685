"""The weights in the repository: they open, and they have learnt English."""

import json
import shutil
from pathlib import Path

import pytest

import bert_jax
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.training import run_config
from tests import documented

MINI = Path(__file__).parents[2] / "bert_jax" / "weights" / "mini"


def test_mini_is_small_and_says_how_it_was_made():
    assert sum(path.stat().st_size for path in MINI.iterdir()) < 16e6
    made = json.loads((MINI / "config.json").read_text("utf-8"))["bert_jax"]
    assert made["step"] == made["config"]["train"]["num_steps"] == 4000
    card = (MINI / "README.md").read_text("utf-8")
    assert "configs/english.py:size=mini" in card and "CC BY-SA" in card


def test_command_of_its_card_is_how_it_was_made():
    """All that decides a number is as in the last training of the card."""
    # Newer fields have their default there.
    made = configuration.complete_config(
        weights.find_source(MINI).run_config(), MINI
    ).to_dict()
    shown = [command.words for command in documented.commands(MINI / "README.md")]
    *_, words = (each for each in shown if any("--config=" in word for word in each))
    fields = [word for word in words if word.startswith("--config.")]
    now = configuration.load_config("configs/english.py:size=mini", fields).to_dict()
    assert "--config=configs/english.py:size=mini" in words and len(fields) > 5
    for config in (made, now):
        del config["train"]["log_every"], config["corpus"]["data_dir"]
        del config["model"]["vocab_size"]  # 0: the tokenizer's
    made, now = (json.loads(json.dumps(config)) for config in (made, now))  # tuples
    decisive = ("seed", "model", "task", "masking", "corpus", "optimizer", "phase2")
    for name in (*decisive, "train"):
        assert now[name] == made[name], name


@pytest.fixture(scope="module")
def mini():
    return bert_jax.load(MINI)


@pytest.mark.slow
def test_mini_fills_gaps(mini):
    guesses = mini.fill_mask("The United [MASK] of America.")
    assert guesses[0][0]["token"] == "states"


def test_mini_answers_on_any_device_however_it_was_trained(tmp_path):
    shutil.copytree(MINI, tmp_path, dirs_exist_ok=True)
    content = (MINI / "config.json").read_text("utf-8")
    fused = content.replace('"attention": "einsum"', '"attention": "fused"')
    assert content != fused
    (tmp_path / "config.json").write_text(fused)
    begin = {"init_from": tmp_path}
    own = run_config.config_of(MINI / "no-run", None, begin, is_inference=True).model
    assert (own.dtype, own.attention) == ("float32", "einsum")
    given = begin | {"model.dtype": "bfloat16", "model.attention": "fused"}
    own = run_config.config_of(MINI / "no-run", None, given, is_inference=True).model
    assert (own.dtype, own.attention) == ("bfloat16", "fused")
