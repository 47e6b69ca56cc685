"""docs/extending.md: each of its files, verbatim, on a smaller model."""

import random
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import registry, tokenization
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data import loader
from bert_jax.models import attention
from bert_jax.runtime import storage
from bert_jax.training import setup, sharding
from bert_jax.workdir import metrics
from tests.close import assert_close
from tests.runs import here, losses, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.S))


@pytest.fixture
def file(micro, monkeypatch, tmp_path):
    """Writes one of the page's files, for the micro model instead of tiny's."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(micro, "micro.py")

    def write(name):
        text = FILES[name].replace('extends = "tiny"', 'extends = "micro"')
        Path(f"{name}.py").write_text(text)
        return f"{name}.py"

    return write


def starts_from(source):
    """Another config, the micro model's, reads a run's weights."""
    fields = [f"--config.init_from={source}", "--config.train.num_steps=1"]
    config = configuration.load_config("micro.py", fields)
    task = setup.build_task(config, storage.storage_path("other"), from_data=True)
    mesh = sharding.make_mesh(task.config)
    read = setup.init_weights(task, sharding.abstract_arrays(task.param_shapes, mesh))
    theirs, (ours, _) = bert_jax.load(source).params["bert"], read
    for one, other in zip(*map(jax.tree.leaves, (ours["bert"], theirs)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_optimizer(file, plain):
    config = file("lion")
    short, longer = "--config.train.num_steps=6", "--config.train.num_steps=7"
    assert run(config, "run", short)
    found = losses("run")
    assert found[-1] < found[0] == pytest.approx(losses(plain)[0], rel=1e-6)
    assert not np.array_equal(found, losses(plain)[: len(found)])
    run(config, "run", longer, "--config.train.extend=True")  # from its checkpoint
    assert len(losses("run")) == 7
    del registry.OPTIMIZERS["lion"]  # as in a new process
    _, error = here("--workdir=run", status=2)
    assert "config.optimizer.name='lion': choose one of" in error


@pytest.mark.slow
def test_attention(file):
    dropout = "--config.model.attention_probs_dropout_prob=0.1"  # it has its own
    run(file("window"), "run", "--config.train.num_steps=6", dropout)
    found = losses("run")
    assert np.isfinite(found).all() and found[-1] < found[0]
    model = bert_jax.load("run")
    assert model.config.attention == "window"
    ids = np.ones((1, 8), np.int32)
    assert len(model.apply(ids, ids, 0 * ids, attentions=True)["attentions"]) == 1
    _, error = here("--workdir=run", "--mode=export", "--output=out", status=2)
    assert "attention window of your own" in error and not Path("out").exists()
    starts_from("run")
    length = 40
    seen = attention.AttentionMask.from_input_mask(jnp.ones((1, length), jnp.int32))
    values = jax.random.normal(jax.random.key(0), (3, 1, length, 2, 8))
    near, every = (
        jax.jit(lambda *qkv, mix=mix: mix(*qkv, seen, 0.0, None)[1])(*values)
        for mix in (registry.ATTENTIONS["window"], attention.einsum_attention)
    )
    distance = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    assert (near[0, 0][distance > 16] == 0).all()
    inside = np.where(distance <= 16, every, 0)
    inside /= inside.sum(axis=-1, keepdims=True)
    assert_close(near, inside)
    del registry.ATTENTIONS["window"]  # as in a new process
    assert weights.read_weights("run").config.attention == "window"


def test_masking(file):
    rng = random.Random(0)
    words = ["the", "Quick", "brown", "Fox", "jumps", "over", "Seven", "cats", "a"]
    lines = (" ".join(rng.choices(words, k=6)) for _ in range(200))
    Path("corpus.txt").write_text(re.sub("((.*\n){5})", r"\1\n", "\n".join(lines)))
    fields = {"corpus.sources": ("sentences:corpus.txt",), "corpus.data_dir": "data"}
    fields["tokenizer.vocab_size"] = 120
    config = bert_jax.make_config(file("capitals"), fields)
    task = setup.build_task(config, storage.storage_path("run"), from_data=True)
    tokens = tokenization.tokens_by_id(task.tokenizer)
    batch = loader.batch_at(task.config, 0)
    counts = [0, 0]
    for ids, masked, positions, chosen, weights_ in zip(
        *(batch[f"{n}"] for n in ("input_ids", "input_mask", "masked_lm_positions")),
        *(batch[f"masked_lm_{n}"] for n in ("ids", "weights")),
        strict=True,
    ):
        used = weights_ > 0
        counts[0] += used.sum()
        counts[1] += sum(tokens[i][0].isupper() for i in chosen[used])
        own = ids.copy()
        own[positions[used]] = chosen[used]
        capitals = {p for p in np.flatnonzero(masked) if tokens[own[p]][0].isupper()}
        if not {*positions[used]} <= capitals:  # the others come last
            assert capitals <= {*positions[used]}
    assert counts[1] > 0.5 * counts[0] > 10


@pytest.mark.slow
def test_head(file, plain):
    rows = ["text,label", *("the quick dog,a", "seven cats,b") * 20]
    for name in ("train.csv", "dev.csv"):
        Path(name).write_text("\n".join(rows) + "\n")
    start = ("--config.task.max_seq_length=16", f"--config.init_from={plain}")
    rate = ("--config.optimizer.learning_rate=0.01", "--config.train.num_epochs=6")
    no_dropout = "--config.model.attention_probs_dropout_prob=0.0"
    config = file("mean")
    run(config, "run", *start, *rate, no_dropout)
    assert metrics.read_metrics(Path("run"), "dev")[-1]["accuracy"] == 1
    Path("rows.txt").write_text("seven cats\n")
    out, _ = run(config, "run", "--mode=predict", "--input=rows.txt")
    assert '"label": "b"' in out
    _, error = run(config, "run", "--mode=export", "--output=model")
    assert "exported without mean" in error
    encoder = bert_jax.load("model")
    assert not encoder.heads and encoder.labels == ()
    expected = bert_jax.load("run").encode(["seven cats"])["hidden_states"]
    found = encoder.encode(["seven cats"])["hidden_states"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_family(file, plain):
    """BERT by another name has BERT's numbers."""
    run(file("mine"), "run")
    np.testing.assert_allclose(losses("run"), losses(plain), rtol=1e-6)
