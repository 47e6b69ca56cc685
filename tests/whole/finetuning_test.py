"""Whole fine-tuning runs through main, on a small made-up data set."""

import itertools
import json
import shutil
import signal

import numpy as np
import pytest

from bert_jax.training.log import Log
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import read_rows, write_rows
from tests.reviews import predictions, run, write_reviews
from tests.runs import here, losses


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))


def predicted(workdir):
    """The rows of a run's predictions."""
    return [json.loads(line) for line in predictions(workdir).splitlines()]


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("finished") / "run"
    out, err = run(folder, workdir)
    return workdir, out, err


def test_run_learns_and_says_so(folder, finished):
    workdir, out, err = finished
    dev = metrics.read_metrics(workdir, "dev")
    # 160 rows in batches of 16: the epochs end at steps 10 and 20.
    assert [line["step"] for line in dev] == [10, 20, 24]
    assert dev[-1]["accuracy"] > 0.9
    assert "majority baseline" in out and "COLLAPSED" not in err
    pairs = zip(predicted(workdir), read_rows(folder / "dev.jsonl"), strict=True)
    right = [row["label"] == gold["label"] for row, gold in pairs]
    assert np.mean(right) == dev[-1]["accuracy"]
    (best,) = (workdir / "best").iterdir()
    assert int(best.name) == max(dev, key=lambda line: line["accuracy"])["step"]


@pytest.mark.slow
def test_predict_and_evaluate_need_the_work_directory_only(folder, finished, tmp_path):
    workdir, _, _ = finished
    texts, target = read_rows(folder / "dev.jsonl"), tmp_path / "out.jsonl"
    source = write_rows(tmp_path / "in.jsonl", texts)
    gone = ("--config.task.train_file=/gone.jsonl",)
    shutil.copytree(workdir, tmp_path / "moved")
    workdir = tmp_path / "moved"
    config = workdir / "config.json"
    text = config.read_text().replace(str(folder / "vocab.txt"), "/gone/vocab.txt")
    config.write_text(text)
    run(folder, workdir, "--mode=predict", f"--input={source}", f"--output={target}",
        *gone)  # fmt: skip
    found = zip(read_rows(target), texts, predicted(workdir), strict=True)
    for row, text, before in found:
        assert row["text"] == text["text"]
        assert row["label"] == before["label"]
        for name, share in before["scores"].items():
            assert row["scores"][name] == pytest.approx(share, rel=1e-4)
    before = predictions(workdir)
    out, _ = run(folder, workdir, "--mode=evaluate", *gone)
    line = json.loads(out)
    last = metrics.read_metrics(workdir, "dev")[-1]
    assert (line["split"], line["accuracy"]) == ("dev", last["accuracy"])
    assert predictions(workdir) == before


RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
NO_DROPOUT = tuple(f"--config.model.{rate}=0.0" for rate in RATES)
NO_DEV = "--config.task.dev_file="
# Parts of a batch and rows of several texts draw other masks of dropout.
WITHOUT_DROPOUT = (
    *("--config.train.micro_batches=2", "--config.task.texts_per_row=2"),
    "--config.task.pad_to_max",
    *("--config.model.scan_layers", "--config.mesh.tensor=2"),
)


@pytest.mark.slow
def test_losses_do_not_depend_on_what_must_not_matter(folder, tmp_path):
    given = (*NO_DROPOUT, NO_DEV, "--config.train.num_steps=12")
    run(folder, tmp_path / "plain", *given)
    run(folder, tmp_path / "other", *given, *WITHOUT_DROPOUT)
    expected, other = losses(tmp_path / "plain"), losses(tmp_path / "other")
    np.testing.assert_allclose(other[0], expected[0], rtol=1e-6)
    assert_close(other, expected, terms=GRADIENT_TERMS)


@pytest.mark.slow
def test_training_data_of_another_run_is_refused(folder, finished, tmp_path):
    workdir, train = tmp_path / "run", tmp_path / "train.jsonl"
    shutil.copytree(finished[0], workdir)
    lines = (folder / "train.jsonl").read_text().splitlines(keepends=True)
    given = f"--config.task.train_file={train}"
    assert list(json.loads((workdir / "data.json").read_text())["dev"]) == ["dev"]
    config = (workdir / "config.json").read_text()
    own = str(folder / "train.jsonl")
    (workdir / "config.json").write_text(config.replace(own, str(train)))
    longer = ("--config.train.num_steps=25", "--config.train.extend=True")
    other = json.dumps({**json.loads(lines[0]), "text": "film"}) + "\n"
    train.write_text("".join([other, *lines[1:]]))
    _, err = run(folder, workdir, given, *longer, status=2)
    assert "the training data is not what this run began with" in err
    train.write_text("".join(lines))
    assert "resuming at step 24" in run(folder, workdir, given, *longer)[1]


@pytest.mark.slow
def test_seeds_side_by_side_are_single_runs(folder, finished, tmp_path):
    run(folder, tmp_path / "seeds", "--config.train.seeds=2")
    run(folder, tmp_path / "one", "--config.seed=1")
    for own, single in (("seed_0", finished[0]), ("seed_1", tmp_path / "one")):
        mine = tmp_path / "seeds" / own
        np.testing.assert_allclose(losses(mine), losses(single), rtol=1e-5)
        for line, other in zip(
            metrics.read_metrics(mine, "dev"),
            metrics.read_metrics(single, "dev"),
            strict=True,
        ):
            assert line["accuracy"] == other["accuracy"]
        for row, other in zip(predicted(mine), predicted(single), strict=True):
            assert row["scores"] == pytest.approx(other["scores"], rel=1e-3, abs=1e-5)
    # A seed's folder is a work directory.
    out, _ = run(folder, tmp_path / "seeds" / "seed_1", "--config.seed=1",
                 "--mode=evaluate")  # fmt: skip
    assert json.loads(out)["step"] == 24
    means = metrics.read_metrics(tmp_path / "seeds", "dev")[-1]
    each = (tmp_path / "seeds" / f"seed_{i}" for i in (0, 1))
    accuracies = [metrics.read_metrics(path, "dev")[-1]["accuracy"] for path in each]
    assert means["accuracy"] == pytest.approx(np.mean(accuracies))
    assert means["accuracy_std"] == pytest.approx(np.std(accuracies, ddof=1))


@pytest.mark.slow
def test_weights_with_other_labels_keep_their_classifier(folder, finished, tmp_path):
    names = {"good": "one", "bad": "two"}
    rows = read_rows(folder / "train.jsonl")
    rows = [{"text": row["text"], "label": names[row["label"]]} for row in rows]
    path = write_rows(tmp_path / "train.jsonl", rows)
    first = f"--config.init_from={finished[0]}"
    run(folder, tmp_path / "other", first, f"--config.task.train_file={path}",
        NO_DEV, "--config.train.num_steps=1")  # fmt: skip
    taken = json.loads((tmp_path / "other" / "init_from.json").read_text())
    heads = [name.partition("/")[0] for name in taken["initialised"]]
    assert heads == ["sequence_classification"] * 2
    assert taken["left_over"] == ["sequence_classification (of other labels)"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--config.train.seeds=2", "--config.train.early_stop=1"], "early_stop"),
        (["--config.task.max_seq_length=33"], "max_position_embeddings=32"),
        (["--config.task.dev_file=none.jsonl"], "none.jsonl"),
        (["--config.task.dev_fraction=0.5"], "is named too; set one of them"),
        (
            ["--config.task.dev_file=", "--config.evaluate.checkpoint=best"],
            "config.evaluate.checkpoint=best: needs scores on dev",
        ),
    ],
)
def test_finetuning_arguments_that_are_wrong(folder, tmp_path, args, words):
    _, err = run(folder, tmp_path / "run", *args, status=2)
    assert words in err and err.startswith("error: ") and err.count("\n") == 1
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_training_takes_the_steps_of_torch(
    torch, transformers, folder, finished, tmp_path
):
    """Same weights, batches and schedule, no dropout: the losses of transformers."""
    from bert_jax.config import configuration
    from bert_jax.training import optimizer, setup
    from experiments.speed import torch_step

    model = tmp_path / "model"
    run(folder, finished[0], "--mode=export", f"--output={model}")
    args = [f"--config.init_from={model}", "--config.optimizer.learning_rate=1e-3"]
    args += [*NO_DROPOUT, NO_DEV]
    run(folder, tmp_path / "run", *args)
    config = configuration.load_config(str(folder / "reviews.py"), args)
    task = setup.build_task(config, tmp_path / "run", from_data=True)
    kind = transformers.AutoModelForSequenceClassification
    given = {"num_labels": len(task.labels), **dict.fromkeys(RATES, 0.0)}
    network = kind.from_pretrained(str(model), **given)
    network.train()
    adam = torch_step.adamw(network, config.optimizer, rate=1.0)
    schedule = optimizer.learning_rate_schedule(task.config)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: float(schedule(step)))
    theirs = []
    batches = task.batches(0, slice(None), 0)
    for batch in itertools.islice(batches, task.config.train.num_steps):
        inputs = torch_step.model_inputs(batch)
        inputs = {name: torch.from_numpy(column) for name, column in inputs.items()}
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        loss = network(**inputs, labels=labels).loss
        loss.backward()
        clip = task.config.optimizer.clip_norm
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        adam.step()
        rate.step()
        adam.zero_grad()
        theirs.append(loss.item())
    np.testing.assert_allclose(theirs, losses(tmp_path / "run"), rtol=1e-4)


# Fine-tuning runs that stop early or collapse. Killed runs: gates/gates_test.py.


NO_LEARNING = "--config.optimizer.learning_rate=0.0"


@pytest.mark.slow
def test_early_stop_without_progress_and_the_best_is_kept(folder, tmp_path):
    args = (NO_LEARNING, "--config.train.eval_every=4", "--config.train.early_stop=2")
    best = "--config.evaluate.checkpoint=best"
    _, err = run(folder, tmp_path / "run", *args, best)
    stopped = "early stop at step 10: 2 evaluations no better than step 4's"
    assert f"{stopped}; the result is that of step 4\n" in err and "COLLAPSED" in err
    steps = [line["step"] for line in metrics.read_metrics(tmp_path / "run", "dev")]
    assert steps == [4, 8, 10]
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["4"]
    before = predictions(tmp_path / "run")
    out, _ = run(folder, tmp_path / "run", *args, best)
    assert "dev at step 4" in out
    assert predictions(tmp_path / "run") == before
    out, _ = run(folder, tmp_path / "run", *args, best, "--mode=evaluate")
    assert json.loads(out)["step"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(("last", "fitted"), [(4, True), (5, False)])
def test_stopped_run_says_what_its_checkpoint_lacks(
    folder, tmp_path, monkeypatch, last, fitted
):
    count = Log.count

    def stop(self, step, *args):
        count(self, step, *args)
        if step == last + fitted:  # the evaluation at 4 is in the next step
            signal.raise_signal(signal.SIGTERM)

    workdir, lacks = tmp_path / "run", "has no fitted temperature, and 1 is used"
    args = ("--config.task.calibration=temperature", "--config.train.eval_every=4")
    args = (*args, "--config.evaluate.checkpoint=best") if fitted else args
    with monkeypatch.context() as patch:
        patch.setattr(Log, "count", stop)
        run(folder, workdir, *args, status=143)
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n')
    asks = ("--mode=predict", f"--input={tmp_path / 'in.jsonl'}")
    before, err = here(f"--workdir={workdir}", *asks)
    assert (lacks not in err) == fitted
    export = ("--mode=export", f"--output={tmp_path / 'to'}")
    _, err = here(f"--workdir={workdir}", *export)
    assert (lacks not in err) == fitted
    here(f"--workdir={workdir}", "--mode=evaluate")
    after, err = here(f"--workdir={workdir}", *asks)
    assert lacks not in err and (before == after) == fitted


@pytest.mark.slow
def test_best_is_by_a_score_of_ones_choice(folder, tmp_path):
    args = ("--config.train.eval_every=4", "--config.evaluate.checkpoint=best")
    chosen = (*args, "--config.evaluate.score=f1:bad")
    _, err = run(folder, tmp_path / "run", *chosen)
    assert "step 4 dev: f1:bad " in err
    dev = metrics.read_metrics(tmp_path / "run", "dev")
    assert {"accuracy", "macro_f1", "f1:bad", "f1:good"} <= dev[0].keys()
    (best,) = (tmp_path / "run" / "best").iterdir()
    assert int(best.name) == max(dev, key=lambda line: line["f1:bad"])["step"]
    # What is kept is the best by that score: another one needs another run.
    _, err = run(folder, tmp_path / "run", *args, status=2)
    assert "evaluate.score ('f1:bad' there, '' now)" in err
    wrong = "--config.evaluate.score=f1:awful"
    _, err = run(folder, tmp_path / "wrong", *args, wrong, status=2)
    assert err.splitlines()[-1] == (
        "error: config.evaluate.score=f1:awful: not reported on dev; choose one of "
        "accuracy, f1, matthews, macro_f1, average_precision, roc_auc, f1:bad, f1:good"
    )
    assert not (tmp_path / "wrong" / "config.json").exists()  # before it begins


@pytest.mark.slow
def test_best_of_an_attempt_that_died_before_it_saved_is_dropped(folder, tmp_path):
    """Its steps come again, and a file kept under one of them is another attempt's:
    before the first checkpoint, and after the one that the run resumes from."""
    workdir = tmp_path / "run"
    for late in (10, 25):
        with Checkpoints(workdir, 1, "best") as best:
            best.save({"params": {"another": np.zeros(3)}}, late)
            best.wait()
        args = (NO_LEARNING, "--config.evaluate.checkpoint=best")
        out, _ = run(folder, workdir, *args)
        assert ("dev at step 10" in out) == (late == 10)
        kept = ["10"] if late == 10 else []  # 25 took its place
        assert [path.name for path in (workdir / "best").iterdir()] == kept
