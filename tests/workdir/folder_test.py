"""A work directory belongs to one config, also if an older version wrote it. One
whose config was edited is refused in one line."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.workdir import folder


def test_run_of_an_own_task_from_before_a_field_was_there(tmp_path):
    config = configuration.load_config("configs/finetune/text.py:recipe=tiny", [])
    config.task.name = "questions"
    config.train.num_steps = 7
    recorded = json.loads(json.dumps(config.to_dict()))
    del recorded["task"]["texts_per_row"]
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    folder.check_run(tmp_path, config)
    config.task.texts_per_row = 4
    with pytest.raises(UserError, match=r"task.texts_per_row \(1 there, 4 now\)"):
        folder.check_run(tmp_path, config)


def test_dev_data_other_than_a_run_began_with(tmp_path):
    config = configuration.load_config("configs/finetune/text.py:recipe=tiny", [])
    vocabulary = Tokenizer(WordLevel({"[UNK]": 0}, "[UNK]"))
    began = {"rows": "a", "dev": {"dev": "b"}}
    folder.claim_folder(tmp_path, config, vocabulary, began)
    for now, name in (
        ({"rows": "a", "dev": {"dev": "c"}}, "dev"),
        ({"rows": "c", "dev": {"dev": "b"}}, "training"),
    ):
        with pytest.raises(UserError, match=f"the {name} data is not what this run"):
            folder.claim_folder(tmp_path, config, vocabulary, now)
    assert folder.read_data(tmp_path) == began
    # Which splits are scored may change.
    folder.claim_folder(
        tmp_path, config, vocabulary, {"rows": "a", "dev": {"dev_mm": "c"}}
    )


def test_run_of_another_task_is_refused_in_a_short_line(tmp_path):
    there, here = (configuration.load_config(x, []) for x in ("tiny", "finetune/text"))
    (tmp_path / "config.json").write_text(json.dumps(there.to_dict()))
    named = r"task\.name \('pretraining' there, 'text' now\), and \d+ other fields; use"
    with pytest.raises(UserError, match=named):
        folder.check_run(tmp_path, here)
