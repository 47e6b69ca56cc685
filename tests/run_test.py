"""Whole runs through main: variants agree, interrupted runs go on, modes work."""

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax import evaluator, main, metrics
from bert_jax import workdir as workdirs
from bert_jax.tasks.pretraining import Pretraining

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def signals_as_before():
    before = {number: signal.getsignal(number) for number in (2, 15)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(micro, workdir, *args):
    """Runs main here, on eight devices; gives (status, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([f"--config={micro}", f"--workdir={workdir}", *args])
    return status, out.getvalue(), err.getvalue()


def command(micro, workdir, *args):
    program = [sys.executable, "-m", "bert_jax.main"]
    return [*program, f"--config={micro}", f"--workdir={workdir}", *args]


def start(micro, workdir, *args, devices=1):
    """Starts main in a process of its own."""
    flags = os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}")
    return subprocess.Popen(
        command(micro, workdir, *args),
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, status=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == status, err
    return out, err


def losses(workdir):
    """The loss of each step, all of them there once and in order."""
    lines = metrics.read(Path(workdir), "train")
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return np.array([line["loss"] for line in lines])


NO_DROPOUT = (
    "--config.model.hidden_dropout_prob=0.0",
    "--config.model.attention_probs_dropout_prob=0.0",
)


MESH = ("--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2")
ZERO1 = ("--config.mesh.optimizer=zero1",)


@pytest.mark.parametrize(
    "change",
    [
        MESH,
        (*MESH, "--config.model.scan_layers", "--config.model.remat=full"),
        ("--config.model.remat=dots",),
        ("--config.model.scan_layers",),
        (*ZERO1, "--config.mesh.data=4", "--config.mesh.tensor=2"),
    ],
    ids=["mesh", "mesh_scan_remat", "remat", "scan_layers", "zero1"],
)
def test_eight_devices_and_variants_give_the_losses_of_one(
    micro, plain, tmp_path, change
):
    status, _, err = run(micro, tmp_path / "run", *change)
    assert status == 0, err
    one, other = losses(plain), losses(tmp_path / "run")
    assert len(one) == 20
    np.testing.assert_allclose(other[0], one[0], rtol=1e-6)
    np.testing.assert_allclose(other, one, rtol=1e-4)


def test_micro_batches_give_the_losses_of_the_whole_batch(micro, tmp_path):
    folders = tmp_path / "whole", tmp_path / "parts"
    lamb = "--config.optimizer.name=lamb"  # the other optimizers: fine-tuning's tests
    for workdir, parts in zip(folders, (1, 4), strict=True):
        change = f"--config.train.micro_batches={parts}"
        status, _, err = run(micro, workdir, change, lamb, *NO_DROPOUT, *MESH)
        assert status == 0, err
    whole, parts = map(losses, folders)
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def test_seeds_side_by_side_are_single_runs_on_the_same_data(micro, tmp_path):
    """Vocabulary, held-out documents and their masks are shared; the rest differs."""
    for name, arguments in (
        ("both", ["--config.train.seeds=2"]),
        ("0", ["--config.seed=0"]),
        ("1", ["--config.seed=1"]),
    ):
        arguments = ["--config.train.eval_every=10", *arguments]
        status, _, err = run(micro, tmp_path / name, *arguments)
        assert status == 0, err
    for seed in "01":
        together, alone = tmp_path / "both" / f"seed_{seed}", tmp_path / seed
        np.testing.assert_allclose(losses(together), losses(alone), rtol=1e-6)
        for mine, own in zip(
            metrics.read(together, "dev"), metrics.read(alone, "dev"), strict=True
        ):
            assert mine["loss"] == pytest.approx(own["loss"], rel=1e-6)
            assert mine["unigram_loss"] == own["unigram_loss"]
        for name in ("vocab.txt", "tokenizer.json"):
            assert (together / name).read_bytes() == (alone / name).read_bytes()
    (zero, one) = (metrics.read(tmp_path / seed, "dev")[-1] for seed in "01")
    assert zero["unigram_loss"] == one["unigram_loss"]
    assert zero["loss"] != one["loss"]
    vocabularies = {(tmp_path / name / "vocab.txt").read_text() for name in "01"}
    assert len(vocabularies) == 1


def test_two_phases_in_one_run(micro, tmp_path):
    args = ("--config.phase2.fraction=0.25", "--config.phase2.max_seq_length=24")
    args += ("--config.phase2.batch_size=8", "--config.phase2.learning_rate=1e-3")
    args += ("--config.phase2.warmup_steps=2", "--config.optimizer.name=lamb")
    status, out, err = run(
        micro, tmp_path / "run", *args, "--config.train.eval_every=10"
    )
    assert status == 0, err
    assert len(losses(tmp_path / "run")) == 20
    lines = metrics.read(tmp_path / "run", "train")
    lengths = [
        line["tokens_per_second"] / line["sequences_per_second"] for line in lines
    ]
    assert lengths == pytest.approx([32] * 15 + [24] * 5)
    rates = [line["learning_rate"] for line in lines[15:]]
    assert rates == pytest.approx([0, 5e-4, 6e-4, 4e-4, 2e-4])
    # What a step needs is told of wider batches only.
    assert "in a step at length 32" in err and "in a step at length 24" not in err
    dev = metrics.read(tmp_path / "run", "dev")
    assert [line["step"] for line in dev] == [10, 20]
    assert dev[0]["unigram_loss"] != dev[1]["unigram_loss"]
    assert "masked LM loss" in out


def test_the_best_of_two_phases_is_that_of_the_second(micro, tmp_path, monkeypatch):
    """Losses at two lengths do not compare, and the longer ones' are the higher."""
    given = iter([1.0, 2.0, 4.0, 5.0])

    def numbers(self, split, results):
        return {**own(self, split, results), "loss": next(given, 5.0)}

    own = Pretraining.numbers
    monkeypatch.setattr(Pretraining, "numbers", numbers)
    args = ("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24")
    args += ("--config.train.eval_every=5", "--config.evaluate.checkpoint=best")
    status, out, err = run(micro, tmp_path / "run", *args)
    assert status == 0, err
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["15"]
    assert "dev at step 15" in out


@pytest.mark.parametrize("kill_after", [1, 13])
def test_killed_and_started_again_writes_the_same_losses(
    micro, plain, tmp_path, kill_after
):
    workdir = tmp_path / "run"
    process = start(micro, workdir)
    path = workdir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < kill_after:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()
    finish(start(micro, workdir))
    assert losses(workdir).tolist() == losses(plain).tolist()
    one, other = metrics.read(plain, "dev"), metrics.read(workdir, "dev")
    assert [line | {"time": 0} for line in other] == [
        line | {"time": 0} for line in one
    ]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_signal_saves_the_step_and_the_run_goes_on_elsewhere(
    micro, tmp_path, number, status
):
    workdir = tmp_path / "run"
    many = "--config.train.num_steps=5000"
    process = start(micro, workdir, many)
    path = workdir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    _, err = finish(process, status)
    last = metrics.read(workdir, "train")[-1]["step"]
    saved = max(int(p.name) for p in (workdir / "checkpoints").iterdir())
    assert saved == last
    assert f"saved step {saved}" in err
    # On another mesh, with another number of devices and less memory on each.
    less = (*ZERO1, "--config.model.remat=full")
    process = start(micro, workdir, many, *MESH, *less, devices=8)
    before = path.read_text().count("\n")
    while path.read_text().count("\n") < before + 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    _, err = finish(process, status)
    assert f"resuming at step {saved} of 5000" in err
    losses(workdir)


def test_a_signal_during_compilation_saves_and_ends_soon(micro, tmp_path):
    workdir = tmp_path / "run"
    process = start(micro, workdir, "--config.model.num_hidden_layers=12")
    while not (workdir / "metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = finish(process, 143)
    assert "saved step 0" in err
    assert (workdir / "checkpoints" / "0").is_dir()


def test_a_signal_during_evaluation_saves_and_the_evaluation_is_made_up(
    micro, tmp_path, monkeypatch
):
    results = evaluator.Evaluator.results

    def signalled(self, *args):
        os.kill(os.getpid(), signal.SIGTERM)
        return results(self, *args)

    workdir, often = tmp_path / "run", "--config.train.eval_every=10"
    with monkeypatch.context() as patch:
        patch.setattr(evaluator.Evaluator, "results", signalled)
        status, _, err = run(micro, workdir, often)
    assert status == 143 and "saved step 10" in err
    assert metrics.read(workdir, "dev") == []
    status, _, err = run(micro, workdir, often)
    assert status == 0, err
    assert [line["step"] for line in metrics.read(workdir, "dev")] == [10, 20]
    assert len(losses(workdir)) == 20


def test_predict_and_evaluate_the_finished_run(micro, plain, tmp_path):
    rows = [
        {"text": "the quick [MASK] fox"},
        {"text": "a dog", "text_b": "seven [MASK] [MASK]", "id": 7},
        {"text": "nothing masked"},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, _, err = run(
        micro, plain, "--mode=predict", f"--input={source}", f"--output={target}"
    )
    assert status == 0, err
    results = [json.loads(line) for line in target.read_text().splitlines()]
    assert [len(row["masks"]) for row in results] == [1, 2, 0]
    for row, result in zip(rows, results, strict=True):
        assert row.items() <= result.items()
        assert ("is_next_probability" in result) == ("text_b" in row)
        for guesses in result["masks"]:
            probabilities = [guess["probability"] for guess in guesses]
            assert len(guesses) == 5
            assert probabilities == sorted(probabilities, reverse=True)
            assert 0 < sum(probabilities) <= 1
            assert all(
                guess.keys() == {"token", "id", "probability"} for guess in guesses
            )
    piped = subprocess.run(
        command(micro, plain, "--mode=predict", "--config.predict.top_k=2"),
        input=source.read_text(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert piped.returncode == 0, piped.stderr
    two = [json.loads(line) for line in piped.stdout.splitlines()]
    for row, full in zip(two, results, strict=True):
        for guesses, more in zip(row["masks"], full["masks"], strict=True):
            assert [g["id"] for g in guesses] == [g["id"] for g in more[:2]]
            np.testing.assert_allclose(
                [g["probability"] for g in guesses],
                [g["probability"] for g in more[:2]],
                rtol=1e-4,
            )
    status, out, err = run(micro, plain, "--mode=evaluate")
    assert status == 0, err
    numbers = json.loads(out)
    saved = metrics.read(plain, "dev")[-1]
    for name in ("masked_lm_loss", "next_sentence_loss", "unigram_loss"):
        assert numbers[name] == pytest.approx(saved[name], rel=1e-5)


def test_evaluation_does_not_depend_on_the_batch_size(micro, plain):
    results = []
    for size in (8, 24):
        config = f"--config.evaluate.batch_size={size}"
        status, out, err = run(micro, plain, "--mode=evaluate", config)
        assert status == 0, err
        results.append(json.loads(out))
    del results[0]["split"], results[1]["split"]
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def own_text(tmp_path):
    """Documents of which no sentence stands twice, and the fields that name them."""
    text = tmp_path / "text.txt"
    text.write_text(
        "".join(
            f"the quick fox {n}\nit jumps {n}\na lazy dog {n}\n\n" for n in range(40)
        )
    )
    fields = [f"--config.corpus.sources=sentences:{text}"]
    return text, [*fields, f"--config.corpus.data_dir={tmp_path}/data"]


def more(text):
    """Adds documents, as where text is still being gathered."""
    with text.open("a") as file:
        file.writelines(f"other words {n}\naltogether {n}\n\n" for n in range(50))


@pytest.mark.parametrize("change", ["more", "gone"])
def test_text_plays_no_part_once_it_is_prepared(micro, tmp_path, monkeypatch, change):
    """Nor at the first evaluation, nor where phase 2 begins."""
    text, own = own_text(tmp_path)
    own += ["--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24",
            "--config.train.num_steps=8", "--config.train.eval_every=2"]  # fmt: skip
    status, _, err = run(micro, tmp_path / "straight", *own)
    assert status == 0, err
    claim = workdirs.claim

    def changing(*args, **kwargs):  # prepared, and nothing is trained yet
        claim(*args, **kwargs)
        more(text) if change == "more" else text.unlink()

    monkeypatch.setattr(workdirs, "claim", changing)
    shutil.rmtree(tmp_path / "data")
    status, out, err = run(micro, tmp_path / "run", *own)
    assert status == 0, err
    assert losses(tmp_path / "run").tolist() == losses(tmp_path / "straight").tolist()
    mine, straight = (
        [{k: v for k, v in line.items() if k != "time"} for line in lines]
        for lines in (
            metrics.read(tmp_path / name, "dev") for name in ("run", "straight")
        )
    )
    assert mine == straight and len(mine) == 4
    assert "sentences, of which 0 (0.0%) stand in the training text" in out
    prepared = [p for p in (tmp_path / "data").iterdir() if p.name.startswith("pairs")]
    assert len(prepared) == 2


def test_a_run_goes_on_with_the_data_that_it_began_with(micro, tmp_path):
    """Where its text has grown or is gone; what else was prepared, it does not take."""
    text, own = own_text(tmp_path)
    own.append("--config.train.num_steps=4")
    stopped = tmp_path / "run"
    assert run(micro, tmp_path / "straight", *own)[0] == 0
    assert run(micro, stopped, *own)[0] == 0
    record = json.loads((stopped / "data.json").read_text())
    assert record == json.loads((tmp_path / "straight" / "data.json").read_text())
    (name,) = record["folders"].values()
    for lost in ("checkpoints", "metrics.jsonl"):  # as if killed after it had prepared
        path = stopped / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    more(text)
    status, _, err = run(micro, stopped, *own)
    assert status == 0, err
    assert losses(stopped).tolist() == losses(tmp_path / "straight").tolist()
    assert json.loads((stopped / "data.json").read_text()) == record
    text.unlink()
    for mode in ("train", "evaluate"):
        status, _, err = run(micro, stopped, *own, f"--mode={mode}")
        assert status == 0, err
    # On another machine, where nothing is prepared yet.
    other = [*own, f"--config.corpus.data_dir={tmp_path}/other"]
    status, _, err = run(micro, stopped, *other)
    assert status == 2 and "no file matches" in err
    own_text(tmp_path)
    status, _, err = run(micro, stopped, *other)
    assert status == 0, err
    assert (tmp_path / "other" / name).exists()


def test_text_that_has_changed_is_noticed_and_prediction_does_without(
    micro, plain, tmp_path
):
    workdir, text = tmp_path / "run", tmp_path / "text.txt"
    own_text(tmp_path)
    data = tmp_path / "data"
    own = [f"--config.corpus.sources=sentences:{tmp_path}/*.txt",
           f"--config.corpus.data_dir={data}",
           "--config.train.num_steps=2"]  # fmt: skip
    status, _, err = run(micro, workdir, *own)
    assert status == 0, err
    config = (workdir / "config.json").read_bytes()
    more(text)
    for told in ("(other text)", "(1 files then, 2 now)"):
        for mode in ("train", "evaluate"):
            shutil.rmtree(data)
            status, _, err = run(micro, workdir, *own, f"--mode={mode}")
            assert status == 2
            assert "the text has changed since the run began" in err
            assert f"/*.txt {told}" in err
        shutil.copy(text, tmp_path / "more.txt")
    assert (workdir / "config.json").read_bytes() == config
    # The vocabulary may well stay the same.
    own_text(tmp_path)
    (tmp_path / "more.txt").unlink()
    fixed = [*own, f"--config.tokenizer.vocab_file={plain}/vocab.txt"]
    other = tmp_path / "fixed"
    assert run(micro, other, *fixed)[0] == 0
    more(text)
    shutil.rmtree(data)
    status, _, err = run(micro, other, *fixed)
    assert status == 2 and "(other text)" in err
    text.unlink()
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the [MASK] fox"}\n')
    status, out, err = run(micro, workdir, *own, "--mode=predict", f"--input={source}")
    assert status == 0, err
    assert len(json.loads(out)["masks"][0]) == 5


def test_a_finished_run_started_again_says_so_and_changes_nothing(micro, plain):
    before = (plain / "metrics.jsonl").read_bytes()
    out, err = finish(start(micro, plain))
    assert "step 20 of 20" in err
    assert "masked LM loss" in out
    assert (plain / "metrics.jsonl").read_bytes() == before


def test_the_work_directory_holds_what_the_design_says(plain):
    names = {path.name for path in plain.iterdir()}
    assert {"config.json", "metrics.jsonl", "checkpoints", "vocab.txt"} <= names
    assert {"tokenizer.json", "predictions"} <= names
    assert any(name.startswith("events") for name in names)
    config = json.loads((plain / "config.json").read_text())
    assert config["model"]["vocab_size"] == 64
    line = metrics.read(plain, "train")[-1]
    assert {"step", "time", "loss", "masked_lm_loss", "learning_rate"} <= set(line)
    assert {"grad_norm", "sequences_per_second", "tokens_per_second"} <= set(line)
    dev = metrics.read(plain, "dev")[-1]
    assert {
        "masked_lm_loss",
        "masked_lm_accuracy",
        "perplexity",
        "unigram_loss",
    } <= set(dev)
    assert {"next_sentence_loss", "next_sentence_accuracy"} <= set(dev)


def test_prepare_ends_with_its_folder(micro, tmp_path):
    import tensorflow_datasets as tfds

    status, out, err = run(micro, tmp_path / "run", "--mode=prepare")
    assert status == 0, err
    last = out.splitlines()[-1]
    assert last.startswith("prepared: ")
    builder = tfds.builder_from_directory(last.removeprefix("prepared: "))
    assert set(builder.info.splits) == {"train", "dev"}
    assert set(builder.info.features) == {"tokens_a", "tokens_b", "is_random_next"}
    assert not (tmp_path / "run").exists()


def test_describe_base(tmp_path):
    target = tmp_path / "base.json"
    status = main.main(
        ["--config=configs/base.py", "--mode=describe", f"--output={target}"]
    )
    assert status == 0
    facts = json.loads(target.read_text())
    assert facts["parameters"] == 109_482_240
    assert facts["flops_per_step"] == pytest.approx(256 * 69.9e9, rel=1e-3)
    assert [phase["steps"] for phase in facts["phases"]] == [900_000, 100_000]


def test_export_and_go_on_from_it_with_other_text(micro, plain, tmp_path):
    exported = tmp_path / "exported"
    status, out, err = run(micro, plain, "--mode=export", f"--output={exported}")
    assert status == 0, err
    assert out == f"exported: {exported}\n"
    text = tmp_path / "own.txt"
    words = ["a", "quick", "dog", "seven", "cats", "the", "fox", "it", "jumps"]
    orders = itertools.permutations(words)
    pairs = [f"{' '.join(next(orders))}\n{' '.join(next(orders))}\n" for _ in range(40)]
    text.write_text("\n".join(pairs))
    own = f"--config.corpus.sources=sentences:{text}", f"--config.init_from={exported}"
    workdir = tmp_path / "run"
    status, _, err = run(micro, workdir, *own)
    assert status == 0, err
    assert (workdir / "vocab.txt").read_text() == (plain / "vocab.txt").read_text()
    report = json.loads((workdir / "init_from.json").read_text())
    assert report["initialised"] == [] and report["left_over"] == []
    assert len(report["taken"]) > 40
    # The first step begins where the other run ended, not at random values.
    assert losses(workdir)[0] < losses(plain)[0] - 0.5

    status, _, err = run(
        micro,
        tmp_path / "other",
        *own,
        f"--config.tokenizer.vocab_file={write_vocabulary(plain, tmp_path)}",
    )
    assert status == 2 and "vocabulary is not that of" in err
    assert not (tmp_path / "other").exists()


def write_vocabulary(workdir, folder):
    """The run's vocabulary with two letters exchanged."""
    pieces = (workdir / "vocab.txt").read_text().splitlines()
    pieces[10:12] = reversed(pieces[10:12])
    path = folder / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    return path


def test_predict_and_evaluate_without_a_work_directory(micro, plain, tmp_path):
    row = '{"text": "the quick [MASK] fox", "text_b": "a dog"}\n'
    source = tmp_path / "in.jsonl"
    source.write_text(row)
    answers = []
    for place, change in (
        (plain, ()),
        (tmp_path / "nowhere", (f"--config.init_from={plain}",)),
    ):
        status, out, err = run(
            micro, place, *change, "--mode=predict", f"--input={source}"
        )
        assert status == 0, err
        answers.append(json.loads(out))
    assert answers[0]["masks"][0][0]["id"] == answers[1]["masks"][0][0]["id"]
    assert answers[0]["is_next_probability"] == pytest.approx(
        answers[1]["is_next_probability"], rel=1e-4
    )
    assert not (tmp_path / "nowhere").exists()
