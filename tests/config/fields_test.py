"""Every field of every config has a row in the table, and wrong values are named."""

import contextlib
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from bert_jax import main
from bert_jax.config import configuration, fields
from bert_jax.errors import UserError
from bert_jax.training import memory

ROOT = Path(__file__).resolve().parents[2]
COMMON = str(ROOT / "configs" / "common.py")
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


def load(*overrides, spec=COMMON):
    return configuration.load(spec, [f"--config.{text}" for text in overrides])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: Path(spec).name)
def test_every_field_has_a_row_and_every_config_passes(spec):
    config = configuration._load_file(spec)
    named = dict(fields.each(config))
    assert named.keys() <= fields._TABLE.keys() | fields.of_family(config).keys()
    if config.task.name:
        fields.check(config)


ALL = dict(fields.each(configuration._load_file(COMMON)))
FINETUNING = {
    name: (spec, value)
    for spec in SPECS
    if "finetune" in spec and "common" not in spec
    for name, value in fields.each(configuration._load_file(spec))
    if name.startswith("task.")
}
WHOLE = [n for n, v in ALL.items() if isinstance(v, int) and not isinstance(v, bool)]
FLOATS = [n for n, v in ALL.items() if isinstance(v, float)]


def refused(name, value, spec=COMMON):
    # The flag parser rejects a number for a tuple, and text for a number.
    with pytest.raises(UserError) as error:
        load(f"{name}={value}", spec=spec)
    assert f"config.{name}={value}"[:60] in str(error.value)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [2**63, 10**30, -(2**31)])
def test_whole_numbers_beyond_what_jax_and_numpy_take(name, value):
    refused(name, value)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.5", "1e+39"])
def test_numbers_that_are_none_or_negative(name, value):
    refused(name, value)


@pytest.mark.parametrize("name", FINETUNING)
def test_the_numbers_of_the_tasks(name):
    spec, value = FINETUNING[name]
    if isinstance(value, float):
        refused(name, "nan", spec)
    elif isinstance(value, int) and not isinstance(value, bool):
        refused(name, 2**40, spec)
    elif isinstance(value, tuple):
        with pytest.raises(UserError, match=r"has 1: all items must be strings"):
            load(f"{name}=(1,'a')", spec=spec)


@pytest.mark.parametrize(
    "override",
    [
        *("masking.masked_lm_prob=0.0", "masking.masked_lm_prob=1.5"),
        *("masking.mask_fraction=-0.1", "model.initializer_range=0.0"),
        "corpus.short_seq_prob=1.1",
        *("corpus.dev_fraction=0.0", "corpus.dev_fraction=1.0"),
        *("model.hidden_dropout_prob=1.0", "optimizer.beta1=1.0"),
        *("train.spike_factor=0.5", "train.on_anomaly=ignore"),
        *("model.remat=some", "evaluate.checkpoint=first"),
        *("optimizer.name=sgd", "mesh.optimizer=zero2"),
        *("corpus.language=xx", "corpus.language=", "corpus.language=English"),
        *("corpus.sources=(1,)", "evaluate.splits=('dev', 2)"),
        *("evaluate.splits=('dev', 'dev')",),
        *("evaluate.splits=('def',)", "checkpoint.keep_every=7"),
        *("train.batch_size=0", "train.seeds=0", "train.num_steps=2147483648"),
        *("phase2.fraction=1.0", "model.hidden_size=1000000000"),
        *("optimizer.beta2=1.0", "optimizer.warmup_fraction=1.5"),
        *("optimizer.warmup_steps=-1", "corpus.max_seq_length=4"),
    ],
)
def test_a_wrong_value_is_named(override):
    with pytest.raises(UserError) as error:
        load(override)
    assert str(error.value).startswith(f"config.{override.partition('=')[0]}=")


@pytest.mark.parametrize(
    ("task", "override"),
    [
        *(("text", f"task.{x}") for x in ("kind=ranking", "truncation=middle")),
        *(("text", f"task.{x}") for x in ("label_separator=", "dev_fraction=1.0")),
        *(("squad", f"task.{x}=0") for x in ("doc_stride", "n_best_size")),
        *(
            ("squad", f"task.{x}")
            for x in ("max_answer_length=0", "max_query_length=-1")
        ),
        *(("ner", "task.scheme=iob"), ("ner", "task.max_seq_length=4")),
    ],
)
def test_a_task_s_wrong_value_is_named(task, override):
    with pytest.raises(UserError) as error:
        load(override, spec=str(ROOT / "configs" / "finetune" / f"{task}.py"))
    assert str(error.value).startswith(f"config.{override.partition('=')[0]}=")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["masking.mask_fraction=0.8", "masking.random_fraction=0.3"],
            ["mask_fraction=0.8", "random_fraction=0.3", "more than 1"],
        ),
        (["seed=2147483647", "train.seeds=2"], ["config.seed=2147483647", "seeds=2"]),
        (["seed=2147483647", "train.restarts=1"], ["restarts=1"]),
    ],
)
def test_values_that_do_not_fit_each_other(overrides, words):
    with pytest.raises(UserError) as error:
        load(*overrides)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("field", "stage"),
    [
        ("clean_min_words=20", "min_length"),
        ("clean_language=0.7", "language"),
        ("clean_similarity=0.7", "near_duplicates"),
        ("clean_overlap_words=8", "overlap"),
    ],
)
def test_a_field_of_the_clean_up_needs_its_stage(field, stage):
    against = ("corpus.clean_against=('a.txt',)",) if stage == "overlap" else ()
    load(f"corpus.{field}", f"corpus.clean=('{stage}',)", *against)
    for others in ((), ("headings",)):
        with pytest.raises(UserError) as error:
            load(f"corpus.{field}", f"corpus.clean={others}")
        message = str(error.value)
        assert message.startswith(f"config.corpus.{field}: only the stage {stage} ")
        assert "\n" not in message


def test_packing_is_for_pretraining():
    load("corpus.packing=True")
    spec = f"{configuration.CONFIGS / 'finetune' / 'swag.py'}"
    with pytest.raises(UserError, match=r"^config\.corpus\.packing=True: .*name=swag"):
        configuration.load(spec, ["--config.corpus.packing=True"])
    with pytest.raises(UserError, match=r"^config\.corpus\.shift_positions=True: "):
        load("corpus.shift_positions=True")
    load("corpus.shift_positions=True", "corpus.packing=True")


@pytest.mark.parametrize(
    "override",
    [
        *("seed=2147483647", "corpus.language=de", "corpus.language=zh-hans"),
        *("train.spike_factor=2.0", "mesh.data=-1"),
        *("corpus.short_seq_prob=0.0", "checkpoint.keep_every=10000"),
    ],
)
def test_right_values_at_the_edges(override):
    load(override)


def test_fields_of_ones_own_task():
    config = configuration._load_file(COMMON)
    config.task.update(ConfigDict({"own": 3, "holdout_file": "x", "weight": 0.5}))
    config.evaluate.splits = ("holdout",)
    fields.check(config)
    config.task.weight = float("nan")
    with pytest.raises(UserError, match=r"config\.task\.weight=nan: must be a finite"):
        fields.check(config)


GB = 10**9


@pytest.mark.parametrize(
    ("overrides", "trains", "words"),
    [
        ([], True, []),
        (["model.hidden_size=1000000"], False, ["model.hidden_size=1000000"]),
        (["model.vocab_size=2000000000"], False, ["vocab_size=2000000000"]),
        (["train.seeds=1000000000"], True, ["train.seeds=1000000000"]),
        (["train.seeds=1000000000"], False, []),
        (["train.seeds=28"], True, ["config.train.seeds=28 take"]),
        (["train.seeds=28", "model.architecture=elmo"], True, []),
        (["train.seeds=60", "optimizer.frozen=('.*',)"], True, []),
        (["train.batch_size=1000000000"], True, ["config.train.batch_size=10000"]),
        (["evaluate.batch_size=1000000000"], True, ["evaluate.batch_size=10000"]),
        (["predict.batch_size=1000000000"], False, ["predict.batch_size=10000"]),
        (["predict.batch_size=1000000000"], True, []),
    ],
)
def test_memory_that_cannot_be_had(monkeypatch, overrides, trains, words):
    monkeypatch.setattr(memory, "_available", lambda: 32 * GB)
    config = load("model.vocab_size=30522", *overrides)
    expected = pytest.raises(UserError) if words else contextlib.nullcontext()
    with expected as error:
        memory.require(config, trains=trains)
    if words:
        assert all(word in str(error.value) for word in [*words, "32,000.0 MB"])


def test_the_formula_counts_what_base_has():
    """109,482,240 with the pooler, biases and LayerNorms, which it leaves out."""
    config = load("model.vocab_size=30522")
    said = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError):
        patch.setattr(memory, "_available", lambda: 0)
        patch.setattr(memory, "_megabytes", lambda size: said.append(size) or "x")
        memory.require(config, trains=False)
    assert 0.99 < said[0] / (4 * 109_482_240) < 1


def test_a_model_too_large_ends_in_one_line(micro, tmp_path, capfd):
    args = [f"--config={micro}", f"--workdir={tmp_path / 'run'}"]
    sizes = ["hidden_size=8388608", "intermediate_size=8388608"]
    status = main.main([*args, *(f"--config.model.{size}" for size in sizes)])
    err = capfd.readouterr().err
    assert status == 2 and "Traceback" not in err
    assert "error: config.model.hidden_size=8388608" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["mrpc", "imdb", "ner", "squad", "swag", "text"])
def test_a_run_from_before_a_field_has_its_default(name):
    schema = configuration.schema(name, "bert")
    recorded = schema.to_dict() | {"task": {"name": name}}
    assert configuration.complete(recorded, "config.json").task == schema.task
    del recorded["task"]["name"]
    with pytest.raises(UserError, match=r"^config\.json: damaged: .*task\.name"):
        configuration.complete(recorded, "config.json")


def test_a_config_file_without_a_field_of_its_task(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "extends = 'finetune/ner'\n"
        "def get_config(config):\n    del config.task.scheme\n"
    )
    with pytest.raises(UserError, match=r"own\.py: no field config\.task\.scheme"):
        load(spec=str(path))


@pytest.mark.parametrize("name", ["glue", "common", "__init__", "questions"])
def test_a_task_of_ones_own_may_be_called_as_a_file_is(name):
    assert configuration.schema(name, "bert").task.to_dict() == {"name": name}
