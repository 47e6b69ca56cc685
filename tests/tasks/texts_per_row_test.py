"""Several texts in a row of training: the same losses, gradients and answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from micro import initial_params

from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.tasks.classification import Classification, TextExample
from configs.finetune import common
from families.gpt.vocabulary import BYTE_PAIRS
from tests.close import GRADIENT_TERMS, assert_close

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]


class Texts(Classification):
    """The task with its records given."""

    given: tuple[TextExample, ...] = ()

    def read(self, split):
        return self.given if split == "train" else None


@pytest.fixture
def make(tmp_path):
    def task(examples=(), length=8, labels=("no", "yes"), **fields):
        config = common.get_config("tiny")
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        config.model.update(sizes)
        (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
        config.tokenizer.vocab_file = str(tmp_path / "vocab.txt")
        config.task.max_seq_length = length
        config.task.labels = labels
        for name, value in fields.items():
            config.task[name] = value
        made = Texts(config)
        made.given = tuple(examples)
        return made

    return task


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_texts_in_shared_rows_have_the_loss_and_gradients_of_texts_alone(make, kind):
    rng = np.random.default_rng(0)
    examples = []
    for index in range(24):
        text = " ".join(rng.choice(list("abcdefghij"), rng.integers(1, 12)))
        label = {
            "classification": index % 2,
            "regression": index / 7,
            "multilabel": (index % 2, index % 3 // 2),
        }[kind]
        examples.append(TextExample(index, text, "c d" if index % 3 else None, label))
    labels = ("score",) if kind == "regression" else ("no", "yes")
    found = []
    for texts in (1, 4):
        task = make(examples, 16, labels, kind=kind, texts_per_row=texts)
        task.resolve()
        task.config.train.batch_size = 16
        if texts == 1:
            params = initial_params(task.init_params)
        rows = next(task.batches(0, slice(None), 0))
        assert task.counted(rows)[0] == texts
        batch = jax.tree.map(jnp.asarray, rows)

        def loss(params, task=task, batch=batch):
            (total,) = task.loss(params, batch, None).values()
            (weight,) = task.loss_weights(batch).values()
            return total / weight

        found.append(jax.jit(jax.value_and_grad(loss))(params))
        shape = task.phases()[0].shapes["input_ids"]
        assert shape == (16 // texts, 16 * texts)
    (alone, gradients), (shared, others) = found
    assert_close(alone, shared)
    assert_close(gradients, others, terms=GRADIENT_TERMS)


@pytest.mark.slow
def test_own_losses_and_weights_are_of_texts_however_rows_are_shared(make):
    class Own(Texts):
        def losses(self, logits, batch):
            return jnp.abs(logits["logits"][:, 0] - batch["label"])

        def weights(self, batch):
            return batch["row_weights"] * (1 + batch["label"])

    examples = [
        TextExample(n, " ".join("abcd"[: 1 + n % 4]), None, n) for n in range(9)
    ]
    found = []
    for texts in (1, 3):
        given = make((), 8, ("score",), kind="regression", texts_per_row=texts).config
        task = Own(given)
        task.given = tuple(examples)
        task.config.train.batch_size = 9
        params = initial_params(task.init_params)
        batch = jax.tree.map(jnp.asarray, next(task.batches(0, slice(None), 0)))
        (loss,), (weight,) = (
            parts.values()
            for parts in (
                jax.jit(task.loss)(params, batch, None),
                task.loss_weights(batch),
            )
        )
        found.append((float(loss), float(weight)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.slow
def test_a_text_does_not_see_the_others_of_its_row(make):
    examples = [TextExample(n, "a b c d", None, n % 2) for n in range(4)]
    task = make(examples, 8, texts_per_row=4)
    task.config.train.batch_size = 4
    params = initial_params(task.init_params)
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, slice(None), 0)))
    run = jax.jit(task.logits)
    before = run(params, batch)["logits"]
    batch["input_ids"] = jnp.where(batch["sequence_ids"] == 2, 8, batch["input_ids"])
    after = run(params, batch)["logits"]
    changed = (before != after).any(axis=-1)
    assert changed.tolist() == [False, True, False, False]


def test_where_rows_cannot_be_shared(make):
    with pytest.raises(UserError, match=r"texts_per_row=2: task\.bilstm"):
        make(texts_per_row=2, bilstm=True)


@pytest.mark.parametrize(
    ("file", "field", "message"),
    [
        ("finetune/text:size=tiny", "model.causal=True", "model.causal=True reads"),
        ("finetune/text:size=tiny,model=gpt", "task.lm_coef=0.0", "is for a BERT's"),
        ("finetune/text:size=tiny,model=elmo", "task.lstm_size=8", "is for a BERT's"),
    ],
)
def test_models_whose_rows_cannot_be_shared(tmp_path, file, field, message):
    (tmp_path / "own.py").write_text(
        f'extends = "{file}"\n\n\ndef get_config(config):\n    return config\n'
    )
    pieces = BYTE_PAIRS.train(["a b c", "b c d"], 20, lowercase=True)
    kind = tmp_path / ("vocab.json" if "gpt" in file else "vocab.txt")
    tokenization.save(pieces, tmp_path)
    if not kind.exists():
        kind.write_text("".join(f"{piece}\n" for piece in PIECES))
    fields = [field, "task.texts_per_row=4"]
    if "elmo" not in file:
        fields.append(f"tokenizer.vocab_file={kind}")
    given = [f"--config.{text}" for text in fields]
    config = configuration.load(str(tmp_path / "own.py"), given)
    with pytest.raises(UserError, match=f"texts_per_row=4: {message}"):
        tasks.create(config)
