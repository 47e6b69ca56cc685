"""Every field of every config is defined, and wrong values are named."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.config import configuration, fields, files, help
from bert_jax.config.configuration import check_config
from bert_jax.errors import UserError
from bert_jax.workdir import folder
from tests.micro import error_line

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted(
    f"{path}{argument}"
    for path in (ROOT / "configs").rglob("[a-z]*.py")
    for argument in (
        [f":task={name}" for name in ("cola", "mnli", "stsb", "ax")]
        if path.stem == "glue"
        else [":version=2.0", ""]
        if path.stem == "squad"
        else [""]
    )
)


def load(*overrides, spec="base"):
    return configuration.load_config(spec, [f"--config.{text}" for text in overrides])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: Path(spec).name)
def test_fields_are_defined_and_configs_pass(spec):
    config = files.load_file(spec)
    assert dict(fields.iter_fields(config)).keys() <= fields.fields_of(config).keys()
    check_config(config)


def test_numbers_beyond_what_jax_and_numpy_take():
    for name, field in (fields.FIELDS | fields.TASK).items():
        wrong = {
            int: [2**63, 10**30, -(2**31)],
            float: [math.nan, math.inf, -math.inf, -0.5, 1e39],
            tuple: [(1, "a")],
        }
        for value in wrong.get(type(field.default), []):
            assert field.fault(value), (name, value)


@pytest.mark.parametrize(
    ("spec", "overrides", "words"),
    [
        ("base", "masking.masked_lm_prob=0.0", []),
        ("base", "model.hidden_dropout_prob=1.0", []),
        ("base", "model.remat=some", []),
        ("base", "optimizer.name=sgd", []),
        ("base", "corpus.language=English", []),
        ("base", "evaluate.splits=('dev',2)", []),
        ("base", "train.batch_size=0", []),
        ("base", "phase2.fraction=1.0", []),
        ("base", "corpus.max_seq_length=4", []),
        ("finetune/text", "task.kind=ranking", []),
        ("finetune/squad", "task.doc_stride=0", []),
        (
            "base",
            "masking.mask_fraction=0.8 masking.random_fraction=0.3",
            ["random_fraction=0.3", "more than 1"],
        ),
        ("base", "init_layers=(0,)", ["config.init_layers=(0,)", "init_from"]),
        ("base", "seed=2147483647 train.seeds=2", ["seed=2147483647", "seeds=2"]),
        ("base", "corpus.shift_positions=True", ["shift_positions=True: "]),
        ("finetune/swag", "corpus.packing=True", ["packing=True: ", "name=swag"]),
    ],
)
def test_value_that_is_wrong_is_named(spec, overrides, words):
    line = error_line(load, *overrides.split(), spec=spec)
    assert line.startswith(f"config.{overrides.partition('=')[0]}=")
    assert all(word in line for word in words)


def test_packing_is_for_pretraining():
    load("corpus.packing=True")
    load("corpus.shift_positions=True", "corpus.packing=True")


def test_fields_of_ones_own_task():
    config = files.load_file("base")
    config.task.update(ConfigDict({"own": 3, "holdout_file": "x", "share": 0.5}))
    config.evaluate.splits = ("holdout",)
    check_config(config)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A config file whose task has a custom field, which is defined as ours are."""
    monkeypatch.setattr(fields, "OWN", {})
    path = tmp_path / "own.py"
    path.write_text(
        "from bert_jax.config.field import Field\n"
        "extends = 'finetune/text:recipe=tiny'\n"
        "def get_config(config):\n"
        "    config.task.smoothing = Field(\n"
        "        0.1, '[0, 1)', fixed_by='none',\n"
        "        doc='Share of a label given to others.')\n"
        "    config.task.rounds = Field(2)\n"
    )
    return str(path)


def test_field_of_a_user_s_own_is_checked_as_ours_are(own):
    assert load("task.smoothing=0.2", spec=own).task.smoothing == 0.2
    wrong = error_line(load, "task.smoothing=1.0", spec=own)
    assert wrong.startswith("config.task.smoothing=1.0: must be in [")
    unknown = error_line(load, "task.smoothin=0.2", spec=own)
    assert re.match(r"--config\.task\.smoothin: .*task\.smoothing", unknown)
    shown = help.help_text(own)
    assert "smoothing=0.1  # number in [0, 1)\n    Share of a label" in shown


def test_field_says_whether_it_may_change_on_resuming(own, tmp_path):
    run = load(spec=own)
    run.train.num_steps = 7
    (tmp_path / "config.json").write_text(json.dumps(run.to_dict()))
    run.task.smoothing = 0.2
    folder.check_run(tmp_path, run)
    run.task.rounds = 3
    line = error_line(folder.check_run, tmp_path, run)
    assert "config: task.rounds (2 there, 3 now); use" in line


def test_how_a_tagger_cuts_words_may_change(tmp_path):
    """It only splits texts to predict."""
    run = configuration.load_config("finetune/ner", [])
    run.train.num_steps = 7
    (tmp_path / "config.json").write_text(json.dumps(run.to_dict()))
    run.task.words = "spaces"
    folder.check_run(tmp_path, run)


@pytest.mark.parametrize("name", ["mrpc", "squad"])
def test_run_from_before_a_field_has_its_default(name):
    schema = configuration.with_defaults(name, "bert")
    recorded = schema.to_dict() | {"task": {"name": name}}
    assert configuration.complete_config(recorded, "config.json").task == schema.task
    del recorded["task"]["name"]
    line = error_line(configuration.complete_config, recorded, "config.json")
    assert line.startswith("config.json: config.task.name=None: must")


OWN = """from bert_jax.config.field import Field
extends = "tiny:recipe=plain"


def get_config(config):
    config.masking.statistics = Field("words.npy", path=True)
    config.optimizer.momentum = Field(0.9, "[0, 1)")
    config.model.width = Field(8, "[1, 64]")
    config.mine = {{"x": Field(2)}}
    config.train.{} = 3
"""


def test_a_config_file_adds_fields_to_any_group(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN.format("num_steps"))
    given = ("optimizer.momentum=0.5", "model.width=16")
    config = load(*given, spec=str(path))
    assert (config.optimizer.momentum, config.model.width) == (0.5, 16)
    recorded = json.loads(json.dumps(config.to_dict()))
    again = configuration.complete_config(recorded, "config.json")
    assert again.masking.statistics == "words.npy" and again == config
    assert again.mine.x == 2
    line = error_line(load, "optimizer.momentum=1.0", spec=str(path))
    assert "momentum=1.0: must be in" in line
    path.write_text(OWN.format("num_step"))
    line = error_line(load, spec=str(path))
    assert re.search(r"num_step: no such.*mean .*num_steps\?", line)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("task.labels", np.unique(["neg", "pos"]), ("neg", "pos")),
        ("task.labels", [*np.unique(["neg", "pos"])], ("neg", "pos")),
        ("train.extend", np.True_, True),
        ("train.num_steps", np.int64(3), 3),
        ("optimizer.learning_rate", 1, 1.0),
        ("optimizer.learning_rate", "1e-4", 1e-4),
        ("task.text", 1, "1"),
        ("task.train_file", Path("a.csv"), "a.csv"),
        ("task.labels", {"neg", "pos"}, None),
        ("task.text", b"text", None),
        ("task.text", ["text"], None),
        ("task.text", True, None),
        ("train.num_steps", 3.0, None),
        ("train.num_steps", True, None),
        ("train.num_steps", None, None),
    ],
)
def test_values_of_python_have_the_type_of_the_field(field, value, expected):
    config = configuration.with_defaults("text")
    if expected is None:
        with pytest.raises(UserError, match="takes a value of type"):
            configuration.set_field(config, field, value)
    else:
        _, now = configuration.set_field(config, field, value)
        assert now == expected and type(now) is type(expected)


@pytest.mark.parametrize(
    ("group", "value"), [("train", {"num_steps": "5"}), ("optimizer", 3), ("task", 3)]
)
def test_a_recorded_value_of_another_type_is_an_error_in_one_line(group, value):
    recorded = configuration.with_defaults().to_dict() | {group: value}
    line = error_line(configuration.complete_config, recorded, "config.json")
    assert re.match(r"config\.json: .+", line)


def test_a_config_file_has_dataclasses_with_late_annotations(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from __future__ import annotations\nimport dataclasses\nextends = 'tiny'\n"
        "@dataclasses.dataclass\nclass Own:\n    steps: int = 7\n"
        "def get_config(config):\n    config.train.num_steps = Own().steps\n"
    )
    assert load(spec=str(path)).train.num_steps == 7


def test_config_file_without_a_field_of_its_task(tmp_path):
    path = tmp_path / "own.py"
    text = "def get_config(config):\n    del config.task.scheme\n"
    path.write_text(f"extends = 'finetune/ner'\n{text}")
    line = error_line(load, spec=str(path))
    assert "own.py: no field config.task.scheme" in line


@pytest.mark.parametrize("name", ["glue", "questions"])
def test_task_of_ones_own_may_be_called_as_a_file_is(name):
    assert configuration.with_defaults(name, "bert").task.to_dict() == {"name": name}


def test_other_values_leave_a_config_as_it_is():
    config = load()
    frozen = fields.with_values(config, {"seed": 3, "train.num_steps": 5})
    assert (frozen.seed, frozen.train.num_steps) == (3, 5)
    assert config == load()
    again = fields.with_values(frozen, {"seed": 4})
    assert (again.seed, again.train.num_steps, frozen.seed) == (4, 5, 3)
    copy = fields.copy_mutable(frozen)
    assert copy.to_dict() == frozen.to_dict()
    copy.train.num_steps = 6
    assert frozen.train.num_steps == fields.copy_mutable(frozen).train.num_steps == 5
    with pytest.raises(AttributeError):
        frozen.seed = 1
    with pytest.raises(
        AttributeError, match=r"config\.train\.num_stepz: no such field"
    ):
        fields.with_values(frozen, {"train.num_stepz": 5})
