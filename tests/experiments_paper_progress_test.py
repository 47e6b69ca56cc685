"""What a run has left is read again: damaged configs, logs that a full disk cut off."""

import json
import sys

import pytest

from bert_jax.config import configuration
from bert_jax.errors import UserError
from experiments.lib import progress, running, runs


def test_what_follows_a_program_begins_a_line(tmp_path, capfd):
    """Its last line has no end where a full disk cut its log off."""
    for said in ("cut off", "whole\n"):
        program = [sys.executable, "-c", f"print({said!r}, end='')"]
        assert running.wait(program, tmp_path / "log") == 0
        print("error: x", file=sys.stderr)
    assert capfd.readouterr().err == "cut off\nerror: x\nwhole\nerror: x\n"


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("corpus", None, 3),
        ("model", "hidden_size", "x"),
        ("model", "hidden_size", -1),
        ("masking", "max_predictions_per_seq", None),
        ("train", "num_steps", 0),
    ],
)
def test_a_damaged_config_of_two_phases(group, field, value, tmp_path):
    """What the time left is estimated from; steps of nothing take none."""
    given = ["--config.tokenizer.vocab_size=100"]
    config = configuration.load(f"{running.ROOT}/configs/base.py", given).to_dict()
    assert config["phase2"]["fraction"]
    if field is None:
        config[group] = value
    else:
        config[group][field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    line = {"step": 10, "split": "train", "time": 1.0, "loss": 1.0}
    lines = [json.dumps({**line, "step": step, "time": step}) for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    run = runs.Run("pre-training", tmp_path, (), "base")
    if value == 0:
        assert progress.states([run])[tmp_path].word == "to do"
        return
    with pytest.raises(UserError, match=f"^{tmp_path}/config.json: "):
        progress.states([run])
