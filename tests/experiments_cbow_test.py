"""The bag of words below ELMo, GPT and BERT: its model, vectors and runs."""

import json
import pathlib

import flax.linen as nn
import jax
import numpy as np
import pytest
from runs import here

from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.tasks.squad.task import Squad
from experiments.cbow import task as cbow
from experiments.cbow import vectors
from experiments.insight import word2vec

WORDS = ["cats", "dogs", "the", "fox", "watch"]


@pytest.fixture
def folder(tmp_path):
    """Words with vectors, and texts whose class is one of their words."""
    pieces = [*tokenization.SPECIAL_TOKENS, *WORDS]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in pieces))
    values = np.random.default_rng(0).normal(size=(len(pieces), 100))
    np.save(tmp_path / "vectors.npy", values)
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 16]
    for name in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return tmp_path


def fields(folder, *more):
    return (
        "--config=experiments/cbow/config.py:of=text.py,size=tiny",
        f"--config.task.train_file={folder}/train.jsonl",
        f"--config.task.dev_file={folder}/test.jsonl",
        f"--config.tokenizer.vocab_file={folder}/vocab.txt",
        *more,
    )


@pytest.mark.parametrize("pairs", [False, True])
def test_the_model_is_the_mean_and_a_hidden_layer(pairs):
    model = cbow.Cbow(9, 4, pairs, 3, 0.5, 2, special=(0, 1, 2, 3, 4))
    ids = np.array([[2, 7, 1, 8, 3, 6, 3, 0], [2, 5, 3, 3, 0, 0, 0, 0]])
    segments = np.array([[0, 0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0]])
    given = (ids, ids > 0, segments)
    params = nn.meta.unbox(model.init(jax.random.key(0), *given)["params"])
    got = model.apply({"params": params}, *given)["logits"]
    table = np.asarray(params["embeddings"])
    # [UNK] (1) and the marks count nowhere; no word at all gives zeros.
    u = np.stack([table[[7, 8]].mean(0), table[5]])
    if pairs:
        v = np.stack([table[6], np.zeros(4)])
        u = np.concatenate([u, v, abs(u - v), u * v], -1)
    hidden, output = params["hidden"], params["output"]
    y = np.tanh(u @ hidden["kernel"] + hidden["bias"])
    np.testing.assert_allclose(got, y @ output["kernel"] + output["bias"], atol=1e-6)


def test_special_tokens_of_a_released_vocabulary_are_no_words():
    """[PAD] is 0 there, [UNK], [CLS], [SEP] and [MASK] are 100 to 103."""
    unused = [f"[unused{number}]" for number in range(99)]
    pieces = ["[PAD]", *unused, *tokenization.SPECIAL_TOKENS[1:], *WORDS]
    config = configuration.load("experiments/cbow/config.py:of=text.py,size=tiny", ())
    config.task.labels = ("x", "y")
    task = tasks.create(config, tokenization.build(pieces, lowercase=True))
    ids = np.array([[101, 104, 100, 106, 102, 0], [101, 104, 106, 0, 0, 0]])
    segments = np.zeros_like(ids)
    params = nn.meta.unbox(task.init_params(jax.random.key(0)))
    logits = task.model.apply({"params": params}, ids, ids > 0, segments)["logits"]
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-6)


def test_frozen_vectors_stay_and_others_learn(folder, tmp_path):
    def table(name, *more):
        place = tmp_path / name
        steps = ("--config.train.num_steps=30", f"--workdir={place}", *more)
        said = "".join(map(str, here(*fields(folder), *steps)))
        assert "--mode=export" not in said  # Hugging Face has no such model
        from bert_jax.workdir.checkpoint import Checkpoints

        with Checkpoints.of_another(place, "checkpoints") as saved:
            params = saved.restore_params(None)[0]
        return np.asarray(params["embeddings"]), said

    start = np.load(folder / "vectors.npy").astype(np.float32)
    given = f"--config.task.vectors={folder}/vectors.npy"
    frozen = "--config.optimizer.frozen=('embeddings',)"
    stayed, said = table("frozen", given, frozen)
    np.testing.assert_array_equal(stayed, start)
    assert "accuracy" in said
    learnt, _ = table("trained", given)
    assert 0 < np.abs(learnt - start).max() < 0.2
    random, _ = table("random", frozen)
    assert np.abs(random - start).max() > 0.5
    assert random.std() == pytest.approx(1, abs=0.1)  # as word2vec's


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"x", "cannot be read"), ((3, 100), "3 words of 100")],
)
def test_vectors_that_do_not_fit_are_one_line(folder, capfd, content, message):
    path = folder / "others.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        np.save(path, np.zeros(content))
    from bert_jax.main import main

    steps = ("--config.train.num_steps=2", f"--workdir={folder / 'run'}")
    given = fields(folder, f"--config.task.vectors={path}", *steps)
    assert main(given) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: config.task.vectors={path}: ") and message in error
    assert not (folder / "run" / "config.json").exists()


def test_only_texts_are_classified():
    with pytest.raises(UserError, match=r"name=squad: a bag of words classifies texts"):
        cbow.CBOW.task("squad", Squad)


@pytest.mark.parametrize(
    ("to_read", "epochs", "kept"), [(0, 5, 10), (200, 20, 10), (25, 5, 5)]
)
def test_word2vec_reads_as_many_words(
    tmp_path, monkeypatch, capsys, to_read, epochs, kept
):
    gensim = pytest.importorskip("gensim.models", reason="needs the senses extra")
    asked = []
    whole = gensim.Word2Vec

    def noted(**settings):
        asked.append(settings["epochs"])
        text = pathlib.Path(settings["corpus_file"]).read_text()
        assert len(text.split()) == kept
        return whole(**settings)

    monkeypatch.setattr(gensim, "Word2Vec", noted)
    monkeypatch.setitem(word2vec.SETTINGS, "min_count", 1)
    (tmp_path / "text.txt").write_text("The fox, the cat and the dogs watch.\n")
    given = [f"--corpus=text:{tmp_path}/text.txt", f"--output={tmp_path / 'out'}"]
    given += [f"--words={to_read}", f"--data_dir={tmp_path / 'data'}"]
    assert vectors.main(given) == 0
    assert asked == [epochs]
    words = (tmp_path / "out" / "vocab.txt").read_text().split()
    assert words[:5] == list(tokenization.SPECIAL_TOKENS) and words[5] == "the"
    values = np.load(tmp_path / "out" / "vectors.npy")
    assert values.shape == (len(words), 100)
    assert np.mean(np.square(values[5:])) == pytest.approx(1)
