"""The ensemble of SQuAD runs: mean logits, the three files, errors."""

import json

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.tasks.squad.task import Squad
from bert_jax.training import optimizer
from bert_jax.training.step import init_state
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints
from configs.finetune import squad
from experiments.paper import squad_ensemble
from families.gpt.vocabulary import BYTE_PAIRS

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Work directories of two sizes, a dev file, and one without answers."""
    folder = tmp_path_factory.mktemp("ensemble")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    for name, answers in (
        ("dev", [{"text": "b c", "answer_start": 2}]),
        ("test", None),
    ):
        questions = [
            {"id": n, "question": "d?"[: n % 3], "answers": answers if n % 2 else []}
            for n in range(6)
        ]
        if answers is None:
            questions = [{"id": q["id"], "question": q["question"]} for q in questions]
        paragraphs = [{"context": "a b c d e f g h", "qas": questions}]
        content = {"data": [{"paragraphs": paragraphs}]}
        (folder / f"{name}.json").write_text(json.dumps(content))
    for seed, size in enumerate((8, 16)):
        config = squad.get_config("tiny", "2.0")
        config.seed = seed
        config.tokenizer.vocab_file = str(folder / "vocab.txt")
        config.model.num_hidden_layers = 1
        config.model.hidden_size = size
        config.model.num_attention_heads = 2
        config.model.intermediate_size = 16
        config.model.max_position_embeddings = 16
        config.task.max_seq_length = 10
        config.task.max_query_length = 4
        config.task.doc_stride = 3
        config.task.dev_file = str(folder / "dev.json")
        config.train.num_steps = 1
        config.evaluate.batch_size = 8
        task = Squad(config)
        config.model.vocab_size = len(PIECES)
        params = nn.meta.unbox(task.init_params(jax.random.key(seed)))
        own = folder / f"run{seed}"
        workdir.claim(own, config, task.tokenizer)
        with Checkpoints(own, 1) as checkpoints:
            state = init_state(params, optimizer.make(config))
            checkpoints.save(state.items(), 1)
            checkpoints.wait()
    return folder


def by_hand(folder, name):
    """The mean of the two models' logits, and what follows of it."""
    tasks, logits = [], []
    for seed in range(2):
        config = squad_ensemble._config(folder / f"run{seed}")
        task = Squad(config)
        task.config.task.dev_file = str(folder / f"{name}.json")
        params = nn.meta.unbox(task.init_params(jax.random.key(seed)))
        tasks.append(task)
        batches = task.evaluation_batches("dev", 0, slice(None))
        run = jax.jit(task.outputs)
        fetched = [jax.device_get(run(params, batch)) for batch in batches]
        logits.append(fetched)
    means = [
        {k: (one[k] + other[k]) / 2 for k in one}
        for one, other in zip(*logits, strict=True)
    ]
    return tasks[0].results("dev", means, learns=True)


def test_the_mean_of_the_logits(folder, capsys):
    both = f"--workdirs={folder}/run0,{folder}/run1"
    assert squad_ensemble.main([both, f"--output={folder}/out"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    expected = by_hand(folder, "dev")
    assert numbers == pytest.approx(expected.scores, rel=1e-4, abs=1e-4)
    files = {path.name for path in (folder / "out").iterdir()}
    assert files == {
        *("predictions.json", "nbest_predictions.json", "null_odds.json"),
        "scores.json",
    }
    assert json.loads((folder / "out" / "scores.json").read_text()) == numbers
    odds = json.loads((folder / "out" / "null_odds.json").read_text())
    theirs = {str(n): answer.null_odds for n, answer in enumerate(expected.answers)}
    assert odds == pytest.approx(theirs, rel=1e-4, abs=1e-4)


def test_a_file_without_answers_takes_a_threshold(folder, capsys):
    options = [f"--workdirs={folder}/run0", f"--file={folder}/test.json"]
    predicted = []
    for threshold in ("-1e9", "1e9"):
        output = folder / f"test{threshold}"
        options_now = [*options, f"--output={output}", f"--null_threshold={threshold}"]
        assert squad_ensemble.main(options_now) == 0
        assert json.loads(capsys.readouterr().out) == {}
        answers = json.loads((output / "predictions.json").read_text())
        predicted.append(np.array([bool(text) for text in answers.values()]))
    assert not predicted[0].any()
    assert predicted[1].all()


def test_each_architecture_reads_in_its_own_way(tmp_path):
    """A GPT reads "no answer" at its last token."""
    texts = ["the quick brown fox jumps over the lazy dog"] * 2
    tokenization.save(BYTE_PAIRS.train(texts, 80, lowercase=True), tmp_path)
    fields = [f"--config.tokenizer.vocab_file={tmp_path / 'vocab.json'}"]
    spec = "configs/finetune/squad.py:version=2.0,model=gpt,size=tiny"
    task = squad_ensemble.task_of(configuration.load(spec, fields))
    assert isinstance(task, Squad) and task.causal


def test_errors(folder, tmp_path, capsys):
    def error(*folders, **options):
        given = [f"--{name}={value}" for name, value in options.items()]
        folders = ",".join(str(path) for path in folders)
        output = f"--output={tmp_path / 'out'}"
        assert squad_ensemble.main([f"--workdirs={folders}", output, *given]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    path = tmp_path / "elmo" / "config.json"
    path.parent.mkdir()
    own = json.loads((folder / "run0" / "config.json").read_text())
    path.write_text(json.dumps(own | {"model": {"architecture": "elmo"}}))
    assert "is a run of an ELMo" in error(path.parent)
    assert "none: no run there" in error(folder / "run0", tmp_path / "none")
    assert "missing.json: cannot be read" in error(
        folder / "run0", file=tmp_path / "missing.json"
    )
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "tokenizer.json"):
        text = (folder / "run0" / name).read_text()
        (other / name).write_text(text.replace('"h": 12', '"i": 12'))
    assert "other has another vocabulary" in error(folder / "run0", other)
    config = json.loads((other / "config.json").read_text())
    config["task"]["name"] = "swag"
    (other / "config.json").write_text(json.dumps(config))
    assert "other is a run of 'swag'" in error(other)
    (other / "config.json").write_text("{")
    assert "config.json: not JSON" in error(other)
