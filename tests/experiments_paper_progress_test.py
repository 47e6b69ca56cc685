"""What a run has left is read again: damaged configs, logs that a full disk cut off."""

import json
import sys

import pytest

from bert_jax.config import configuration
from bert_jax.errors import UserError
from experiments.lib import execution, progress, running
from experiments.paper import runs


@pytest.mark.parametrize("verbose", [False, True])
def test_a_line_a_run_and_its_output_with_verbose(verbose, tmp_path, capfd):
    """The output's last line has no end where a full disk cut the log off."""
    for said in ("cut off", "whole\n"):
        program = [sys.executable, "-c", f"print({said!r}, end='')"]
        with execution._Line("run 1 of 2: a", verbose=verbose) as line:
            assert running.wait(program, tmp_path / "log", (), line.show) == 0
            line.said = "8 s"
    between = ["\nrun 1 of 2: a: 8 s\n".join(["run 1 of 2: a\n%s", ""])] * 2
    shown = "".join(between) % ("cut off", "whole") if verbose else ""
    assert capfd.readouterr().err == (shown or "run 1 of 2: a: 8 s\n" * 2)
    assert (tmp_path / "log").read_text() == "cut offwhole\n"


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
