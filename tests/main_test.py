"""User errors: one line, status 2, nothing half-written."""

import json
import shutil
import subprocess
import sys

import jax
import pytest

from bert_jax import main
from bert_jax.training import step
from bert_jax.workdir.checkpoint import Checkpoints, has_checkpoint
from tests.runs import LIMIT, ROOT

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def refused(micro, tmp_path, capfd):
    """Runs main, which must refuse in one line holding every one of some words."""

    def check(*args, words, config=micro, workdir=tmp_path / "run"):
        status = main.main([f"--config={config}", f"--workdir={workdir}", *args])
        _, err = capfd.readouterr()
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert status == 2, err
        assert len(lines) == 1 and "Traceback" not in err, err
        assert "\x1b" not in err  # no terminal obeys it
        assert all(word in lines[0] for word in words), lines[0]
        assert not (workdir / "config.json").exists() or workdir != tmp_path / "run"
        return lines[0]

    return check


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--config.train.batch_size=abc"], ["train.batch_size=abc", "int"]),
        (["--config.train.batch_size=12"], ["train.batch_size", "12", "8 device"]),
        (
            ["--config.mesh.data=2", "--config.mesh.tensor=4"],
            ["mesh.tensor=4", "num_attention_heads=2"],
        ),
        (["--config.corpus.sources=text:/nowhere/*.txt"], ["text:/nowhere/*.txt"]),
        (["--config.corpus.max_seq_length=33"], ["max_seq_length", "33", "32"]),
        (["--mode=trian"], ["mode", "trian"]),
        (["--mode=evaluate"], ["has no checkpoint", "init_from"]),
        (["--config.init_from=/no/model"], ["/no/model"]),
        (
            [
                "--config.tokenizer.vocab_file=VOCABULARY",
                "--config.model.vocab_size=12",
            ],
            ["model.vocab_size=12", "13"],
        ),
    ],
    ids=lambda value: value[0][:40],
)
def test_arguments_that_are_wrong(refused, tmp_path, args, words):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in [*SPECIAL, *"abcdefgh"]))
    refused(*(arg.replace("VOCABULARY", str(path)) for arg in args), words=words)


def test_other_config_is_refused(refused, plain):
    refused(config="nowhere.py", words=["nowhere.py"])
    refused(config="configs/tiny.py:size=3", words=["size"])
    given = ("--config.optimizer.learning_rate=0.5", "--config.seed=3")
    words = ["optimizer.learning_rate", "0.5", "seed", "another"]
    refused(*given, workdir=plain, words=words)


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "quick [MASK]"', ["rows.jsonl:2", "JSON"]),
        (json.dumps({"text": "fox " * 40}), ["rows.jsonl:2", "32 positions"]),
    ],
)
def test_rows_that_are_wrong(refused, plain, tmp_path, line, words):
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(f'{{"text": "fine"}}\n{line}\n')
    args = "--mode=predict", f"--input={source}", f"--output={target}"
    refused(*args, words=words, workdir=plain)
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.fixture
def damaged(plain, tmp_path):
    """A finished run whose checkpoints can be damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(plain, copy)

    def damage(step):
        for path in (copy / "checkpoints" / str(step)).rglob("*"):
            if path.is_file() and path.parent.name == "d":
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size // 2)

    return copy, damage


@pytest.mark.usefixtures("one_device")
def test_damaged_checkpoint_gives_way_to_the_one_before(micro, damaged, capfd, caplog):
    workdir, damage = damaged
    damage(20)
    assert main.main([f"--config={micro}", f"--workdir={workdir}"]) == 0
    err = capfd.readouterr().err
    assert "checkpoint 20 cannot be read" in caplog.text
    assert "at step 10 of 20" in err
    assert (workdir / "damaged_checkpoints" / "20").is_dir()
    with Checkpoints(workdir, 3) as checkpoints:
        assert checkpoints.latest_step() == 20


def test_unfinished_checkpoint_is_none(tmp_path):
    (tmp_path / "checkpoints" / "10.orbax-checkpoint-tmp").mkdir(parents=True)
    assert not has_checkpoint(tmp_path)
    (tmp_path / "checkpoints" / "10").mkdir()
    assert has_checkpoint(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_device_without_enough_memory(refused, tmp_path, monkeypatch):
    def exhausted(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")

    monkeypatch.setattr(step, "train_step", exhausted)
    words = ["memory", "train.micro_batches", "Out of memory"]
    refused(words=words, workdir=tmp_path / "memory")


# Between the shell and the answer: libraries that a mode does without.


# Each takes a part of a second, or brings what does. A name covers all below it.
NEEDLESS = (
    *("grain", "tensorflow_datasets", "sentencex", "tensorboardX"),
    *("scipy", "pyarrow", "requests", "jax.experimental.pallas.triton"),
    *("bert_jax.families.elmo",),
)
PROGRAM = """
import sys
from bert_jax import main
status = main.main(sys.argv[1:])
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.slow
def test_imports_of_predict(plain):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--workdir={plain}", "--mode=predict"],
        cwd=ROOT,
        input='{"text": "the [MASK] fox"}',
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    imported = done.stderr.split()
    assert {"jax", "bert_jax.tasks.pretraining", "bert_jax.predict"} <= {*imported}
    below = tuple(f"{name}." for name in NEEDLESS)
    assert [name for name in imported if f"{name}.".startswith(below)] == []
