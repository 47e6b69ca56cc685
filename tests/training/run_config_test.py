"""A run is queried by its own config: every kind of query gives the same answers.

Real records, and task fields that are not the defaults, so that whatever is taken from
elsewhere than the run shows. The models are micro.
"""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.asking import (
    DATA,
    FINETUNE,
    MODEL,
    TRAINING,
    contents,
    make_model,
    same,
    varied,
)
from tests.micro import read_rows, write_rows
from tests.runs import here as bert
from tests.runs import refused


class Run(NamedTuple):
    """A finished run whose best checkpoint is not its last, and its queries."""

    workdir: Path
    spec: str  # as README has it: the task, without what the run changed
    rows: list[dict]  # the dev records as `predict` takes them


@pytest.fixture(scope="module")
def model(shared_data, tmp_path_factory):
    """A folder as Hugging Face's, with random weights and a real vocabulary."""
    return make_model(tmp_path_factory.mktemp("model") / "bert", shared_data)


@pytest.fixture(scope="module")
def runs(shared_data, model, tmp_path_factory):
    """Gives the run of a kind, trained once."""
    known = {}

    def find(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            spec, flags, rows = DATA[kind](shared_data, folder)
            spec = f"{FINETUNE}/{spec}"
            bert(f"--config={spec}", f"--workdir={folder / 'best'}", *MODEL, *TRAINING,
                 *flags, f"--config.init_from={model}")  # fmt: skip
            known[kind] = Run(folder / "best", spec, rows)
        return known[kind]

    return find


def steps(workdir, name):
    return max(int(path.name) for path in (workdir / name).iterdir())


def by_files(folder):
    """The tags of the prediction file, in the form of `predict`."""
    sentences = (folder / "dev.conll").read_text().strip().split("\n\n")
    return [
        {"tags": [line.split("\t")[-1] for line in sentence.split("\n")]}
        for sentence in sentences
        if "-DOCSTART-" not in sentence
    ]


def predict(run, folder, *args):
    source, target = write_rows(folder / "in.jsonl", run.rows), folder / "out.jsonl"
    _, err = bert("--mode=predict", f"--input={source}", f"--output={target}", *args)
    assert "no null_threshold" not in err
    return read_rows(target)


def evaluate(*args):
    out, err = bert("--mode=evaluate", *args)
    assert "no null_threshold" not in err
    return json.loads(out)


def own_scores(workdir, step):
    lines = read_rows(workdir / "metrics.jsonl")
    (found,) = [x for x in lines if (x["split"], x["step"]) == ("dev", step)]
    return {k: v for k, v in found.items() if k not in ("time", "split", "step")}


@pytest.mark.slow
def test_answers_are_the_same_in_every_mode(runs, tmp_path):
    """Of a run with labels, documents and facts of its own."""
    run = runs("ner")
    step = steps(run.workdir, "best")
    assert step < steps(run.workdir, "checkpoints")
    before = stamps(run.workdir)
    workdir, model = f"--workdir={run.workdir}", tmp_path / "model"
    rows = predict(run, tmp_path, workdir)
    bert("--mode=export", workdir, f"--output={model}")
    assert stamps(run.workdir) == before  # readers change nothing
    kept = by_files(run.workdir / "predictions")
    assert varied(kept)
    # The sentences of a document are answered one by one.
    same(kept, rows, lambda index: index % 4 == 0)
    scores = own_scores(run.workdir, step)

    def says(step, *args):
        assert evaluate(*args) == {
            "step": step,
            "split": "dev",
            **{n: pytest.approx(x, abs=1e-5, rel=1e-5) for n, x in scores.items()},
        }

    names = contents(run.workdir / "predictions").keys()
    says(step, workdir)
    assert contents(run.workdir / "predictions").keys() == names
    same(kept, by_files(run.workdir / "predictions"))

    fresh = f"--workdir={tmp_path / 'fresh'}"
    first = f"--config.init_from={model}"
    same(rows, predict(run, tmp_path, fresh, first))
    # Where the data is on the exporting machine is not read from the folder.
    says(0, fresh, first, f"--config.task.dev_file={run.workdir.parent / 'dev.conll'}")
    same(kept, by_files(tmp_path / "fresh" / "predictions"))
    other = f"--workdir={tmp_path / 'other'}", f"--config.init_from={run.workdir}"
    same(rows, predict(run, tmp_path, *other, f"--config={run.spec}"))


@pytest.mark.slow
def test_evaluate_of_other_data_takes_the_run_s_threshold(runs, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(runs("squad").workdir, workdir)
    before = contents(workdir)
    own = json.loads(before["task.json"])[str(steps(workdir, "best"))]
    other = runs("squad").workdir.parent / "other.json"
    found = evaluate(f"--workdir={workdir}", f"--config.task.dev_file={other}")
    assert found["null_threshold"] == own["null_threshold"]
    (there,) = workdir.glob("predictions/other-??????")
    odds = json.loads((there / "null_odds.json").read_text())
    texts = json.loads((there / "predictions.json").read_text())
    answered = {k for k in odds if odds[k] <= own["null_threshold"]}
    assert answered == {k for k in texts if texts[k]}
    after = contents(workdir)
    new = after.keys() - before.keys()
    assert {str(Path(name).parent) for name in new} == {f"predictions/{there.name}"}
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_fields_that_the_run_decides_are_refused(runs):
    workdir = runs("ner").workdir
    asks = ("--mode=evaluate", f"--workdir={workdir}")
    err = refused(*asks, "--config.task.max_seq_length=48")
    assert err == (
        f"error: --config.task.max_seq_length=48: the run in {workdir} has 64, and "
        "this mode must use the run's value; leave this flag out\n"
    )
    other = ("--config.evaluate.batch_size=8", "--config.model.dtype=bfloat16")
    _, err = bert(*asks, *other)
    assert "config.model.dtype='bfloat16', but the run has 'float32'\n" in err
    assert "batch_size" not in err  # no number depends on it
    squad = f"--config={FINETUNE / 'squad.py'}"
    err = refused("--mode=predict", f"--workdir={workdir}", squad)
    assert "'ner'" in err and "'squad'" in err


def stamps(folder):
    """Every file and folder, with its content and modification time."""
    files = contents(folder)
    return {
        str(path): (path.stat().st_mtime_ns, files.get(str(path.relative_to(folder))))
        for path in [folder, *folder.rglob("*")]
    }


# Third-party weights are used as they are: a gap counts only where it is used.


TEXTS = ["He went to the [MASK] .", "the [MASK] of the city was [MASK] in 1066"]


@pytest.fixture(scope="module")
def folders(shared_data, tmp_path_factory):
    """Gives a Hugging Face folder of an architecture."""
    known = {}

    def find(architecture):
        if architecture not in known:
            folder = tmp_path_factory.mktemp(architecture) / "model"
            known[architecture] = make_model(folder, shared_data, architecture)
        return known[architecture]

    return find


def predict_folder(folder, rows, *args, status=0):
    source, target = write_rows(folder / "in.jsonl", rows), folder / "out.jsonl"
    files = (f"--input={source}", f"--output={target}", f"--workdir={folder / 'none'}")
    if status:
        return refused("--mode=predict", *files, *args)
    bert("--mode=predict", *files, *args)
    return read_rows(target)


@pytest.mark.slow
def test_masks_are_filled_in_without_a_next_sentence_head(
    torch, transformers, folders, tmp_path
):
    model = folders("BertForMaskedLM")
    rows = [{"text": text, "text_b": "so they say ."} for text in TEXTS]
    answers = predict_folder(tmp_path, rows, f"--config.init_from={model}")
    assert all("is_next_probability" not in answer for answer in answers)
    theirs = transformers.BertForMaskedLM.from_pretrained(model).eval()
    tokenizer = transformers.BertTokenizerFast(str(model / "vocab.txt"))
    for row, answer in zip(rows, answers, strict=True):
        encoding = tokenizer(row["text"], row["text_b"], return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**encoding).logits[0]
        places = (encoding["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        shares = torch.softmax(logits[places[:, 0]], -1).numpy()
        assert len(answer["masks"]) == len(shares)
        for guesses, own in zip(answer["masks"], shares, strict=True):
            assert guesses[0]["id"] == np.argmax(own)
            for guess in guesses:
                expected = pytest.approx(own[guess["id"]], abs=1e-6)
                assert guess["probability"] == expected


@pytest.mark.slow
def test_tagger_needs_no_pooler_and_names_for_its_tags(folders, tmp_path):
    model = folders("BertForTokenClassification")
    spec = f"--config={FINETUNE / 'ner.py'}:recipe=tiny"
    words = {"words": ["The", "Normans", "won", "in", "1066", "."]}
    args = (spec, "--config.task.max_seq_length=64", f"--config.init_from={model}")
    err = predict_folder(tmp_path, [words], *args, status=2)
    assert "config.task.labels: 'LABEL_0' has no prefix" in err
    (plain,) = predict_folder(tmp_path, [words], *args, "--config.task.scheme=none")
    names = "--config.task.labels=('O', 'B-PER')"
    (named,) = predict_folder(tmp_path, [words], *args, names)
    assert len(set(plain["tags"])) == 2
    meaning = {"LABEL_0": "O", "LABEL_1": "B-PER"}
    assert named["tags"] == [meaning[tag] for tag in plain["tags"]]


@pytest.mark.slow
def test_folder_names_what_is_missing(folders, tmp_path):
    spec = f"--config={FINETUNE / 'swag.py'}:recipe=tiny"
    given = (spec, "--config.task.max_seq_length=64")
    given = (*given, f"--config.init_from={folders('BertForMaskedLM')}")
    row = {"context": "He .", "endings": ["a", "b"]}
    err = predict_folder(tmp_path, [row], *given, status=2)
    missing = "bert/pooler, multiple_choice"
    assert f"BertForMaskedLM without what this task needs: {missing}; " in err


def test_folder_is_exported_without_a_run(torch, transformers, folders, tmp_path):
    source, target = folders("BertForMaskedLM"), tmp_path / "out"
    before = contents(source)
    out, _ = bert("--mode=export", f"--config.init_from={source}",
                  f"--output={target}", f"--workdir={tmp_path / 'none'}")  # fmt: skip
    assert out == f"exported: {target}\n" and contents(source) == before
    assert not (tmp_path / "none").exists()
    read = transformers.BertForMaskedLM.from_pretrained
    theirs, ours = (read(x).eval() for x in (source, target))
    old = transformers.BertTokenizerFast(str(source / "vocab.txt"))
    new = transformers.AutoTokenizer.from_pretrained(target)
    given = ("He went to the City", "Of Rome")
    encodings = [cut(*given, return_tensors="pt") for cut in (old, new)]
    assert torch.equal(encodings[0]["input_ids"], encodings[1]["input_ids"])
    with torch.no_grad():
        some, others = (m(**e) for m, e in zip((theirs, ours), encodings, strict=True))
    for name in some:
        torch.testing.assert_close(some[name], others[name], rtol=0, atol=0)


def test_folder_without_weights(tmp_path):
    for mode in ("predict", "evaluate", "export"):
        workdir, output = f"--workdir={tmp_path}/none", f"--output={tmp_path / 'out'}"
        err = refused(f"--mode={mode}", workdir, output)
        assert f"{workdir} does not exist, and there is no --" in err
    assert not list(tmp_path.iterdir())
