"""A work directory belongs to one config, also if an older version wrote it."""

import json

import pytest

from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.workdir import folder


def test_a_run_of_an_own_task_from_before_a_field_was_there(tmp_path):
    config = configuration.load("configs/finetune/text.py:size=tiny", [])
    config.task.name = "questions"
    config.train.num_steps = 7
    recorded = json.loads(json.dumps(config.to_dict()))
    del recorded["task"]["texts_per_row"]
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    assert folder.check(tmp_path, config) == 7
    config.task.texts_per_row = 4
    with pytest.raises(UserError, match=r"task.texts_per_row \(1 there, 4 now\)"):
        folder.check(tmp_path, config)
