"""Distillation: its losses against torch and by hand, for each task, and whole runs."""

import functools
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.convert import export, layout, weights
from bert_jax.convert.layout import Weights
from bert_jax.tasks import distillation
from tests import micro_config
from tests.contract_tasks import CONTRACT, create
from tests.micro import initial_params, read_rows
from tests.micro_data import KINDS
from tests.runs import here, run, write_pairs

TERMS = {f"task.teacher_{term}": 0.5 for term in distillation.LAYER_TERMS}
ALL = slice(None)
MASK = jnp.array([[1, 1, 1, 0], [1, 1, 0, 0]])


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(len(shape)), shape)


def test_soft_loss_is_torchs_divergence(torch):
    ours, theirs = 3 * normal(2, 5, 7)
    found = distillation.soft_loss(ours, theirs, 2.0)
    one, two = (
        torch.log_softmax(torch.tensor(np.array(x)) / 2, dim=-1) for x in (ours, theirs)
    )
    each = torch.nn.functional.kl_div(one, two, reduction="none", log_target=True)
    np.testing.assert_allclose(found, 4 * each.sum(-1).numpy(), rtol=1e-5)
    # As padding has, at a temperature below 1.
    padded = [jnp.pad(x, ((0, 0), (0, 2)), constant_values=jnp.finfo(x.dtype).min)
              for x in (ours, theirs)]  # fmt: skip
    pairs = (padded, (ours, theirs))
    found, expected = (distillation.soft_loss(*pair, 0.5) for pair in pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "kind", ["classification", "multilabel", "regression", "spans"]
)
def test_losses_of_outputs_by_hand(kind):
    """The Kullback-Leibler divergence of two distributions, without the padding."""

    def divergence(student, teacher):
        p, q = (np.exp(x) / np.exp(x).sum() for x in (teacher, student))
        return np.sum(p * np.log(p / q))

    rng = np.random.default_rng(0)
    names = ("start_logits", "end_logits") if kind == "spans" else ("logits",)
    shape = (2, 1 if kind == "regression" else 4)
    ours, theirs = (
        {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name in names}
        for _ in range(2)
    )
    found = distillation.output_losses(ours, theirs, {"input_mask": MASK}, kind, 1.0)
    for row, length in enumerate(np.sum(MASK, axis=1)):
        pairs = [(np.array(ours[n][row]), np.array(theirs[n][row])) for n in names]
        if kind == "regression":
            parts = [(a - b) ** 2 for a, b in pairs]
        elif kind == "multilabel":
            ((own, its),) = pairs
            parts = [
                divergence(*np.float32([[0, a], [0, b]]))
                for a, b in zip(own, its, strict=True)
            ]
        else:
            end = length if kind == "spans" else None
            parts = [divergence(a[:end], b[:end]) for a, b in pairs]
        assert float(found[row]) == pytest.approx(float(np.mean(parts)), rel=1e-4)


def test_cosine_loss_is_torchs(torch):
    ours, theirs = normal(2, 2, 4, 8)
    found = distillation._cosine_loss({"states": [ours]}, {"states": [theirs]}, MASK)
    tokens = [torch.tensor(np.array(x[MASK > 0])) for x in (ours, theirs)]
    loss = torch.nn.CosineEmbeddingLoss(reduction="sum")
    expected = loss(*tokens, torch.ones(5))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


def test_hidden_loss_compares_every_second_layer():
    student, teacher = normal(3, 2, 4, 8), normal(5, 2, 4, 8)  # embeddings first
    models = ({"states": [*states]} for states in (student, teacher))
    found = distillation._hidden_loss(*models, MASK)
    errors = np.square(student - teacher[::2])[:, MASK > 0].mean(axis=-1)
    np.testing.assert_allclose(found, errors.mean(axis=0).sum(), rtol=1e-5)


def test_attention_loss_is_the_squared_error_of_scores():
    """But for each query's constant, and at padding."""
    scores = 4 * normal(2, 2, 2, 3, 4, 4)  # [models, layers, batch, heads, from, to]
    seen = np.broadcast_to(MASK[:, None, None] > 0, scores.shape[1:])
    models = [jax.nn.softmax(np.where(seen, x, -np.inf), axis=-1) for x in scores]
    ours, theirs = ({"probabilities": [*x]} for x in models)
    expected = 0.0
    for batch, length in enumerate((3, 2)):
        apart = (scores[0] - scores[1])[:, batch, :, :length, :length]
        apart = apart - apart.mean(axis=-1, keepdims=True)
        expected += np.square(apart).mean(axis=(0, 1, 3)).sum()

    @jax.jit
    @jax.value_and_grad
    def loss(probabilities):
        ours = {"probabilities": probabilities}
        return distillation._attention_loss(ours, theirs, MASK)

    found, gradients = loss(ours["probabilities"])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert all(np.isfinite(x).all() for x in gradients)


def save(task, params, folder: Path, **changes) -> Path:
    """Writes a task's model as a Hugging Face folder."""
    config = task.model_config
    name = layout.BERT.name_of(params.keys() - {"bert"}, config.causal)
    labels = tuple(task.config.task.get("labels", ()))
    model = Weights(config, params, name, labels, **changes)
    export.export_folder(model, task.tokenizer, folder, {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["text_multilabel", "squad2", "ner", "packed_in_two_phases"]
)
def test_teachers_copy_is_at_no_distance(name, tmp_path, monkeypatch):
    """And another model is at some, in each term, in batches with padding."""
    monkeypatch.chdir(tmp_path)
    kinds = CONTRACT if name in CONTRACT else KINDS
    monkeypatch.setattr("tests.contract_tasks.CONTRACT", kinds)
    fields = {"train.batch_size": 16} | {f: 0 for f in TERMS}
    teacher = create(name, fields)
    params = jax.tree.map(lambda x: 3 * x, initial_params(teacher.init_params))
    folder = save(teacher, params, tmp_path / "teacher")
    task = create(name, {**fields, **TERMS, "task.teacher": folder})
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, ALL, 0)))
    given = nn.meta.unbox(task.constants())
    rng, own = np.random.default_rng(2), given["teacher"]
    loss, other = jax.jit(task.loss), jax.tree.map(lambda x: rng.permuted(x), own)
    same = loss({**own, **given}, batch, None)
    apart = loss({**other, **given}, batch, None)
    for terms in ((), ("cosine",), distillation.LAYER_TERMS):  # kernels have no others
        apply = functools.partial(task.apply, terms=terms)
        found = jax.eval_shape(apply, other, batch, None)
        there = [layer in found for layer in distillation.LAYERS]
        assert there == [bool(terms), len(terms) > 1]
    divisors = task.loss_weights(batch)
    assert same.keys() == apart.keys() == divisors.keys()
    names = {"teacher_loss", *(f"teacher_{x}_loss" for x in distillation.LAYER_TERMS)}
    assert names < same.keys()
    for loss in names:
        assert abs(same[loss]) < 1e-5 * divisors[loss], loss
        assert apart[loss] > 1e-4 * divisors[loss], loss


@pytest.fixture
def taught(plain, tmp_path):
    """A config file for fine-tuning on pairs."""
    write_pairs(tmp_path, "fox", "cat")
    return micro_config.finetuning(
        tmp_path / "taught.py",
        plain,
        "finetune/text:recipe=tiny",
        """config.task.text_b = "text_b"
        config.train.log_every = 1""",
    )


@pytest.mark.slow
def test_student_of_one_layer_learns_from_two(taught, tmp_path):
    """Then it answers without the teacher and its layers' origin."""
    teacher = tmp_path / "teacher"
    few = ("--config.train.num_steps=2", "--config.task.dev_file=")
    run(taught, teacher, *few, "--config.init_layers=(0, 0)")
    saved = weights.read_weights(teacher)
    assert saved.config.num_hidden_layers == 2
    layers = saved.params["bert"]["encoder"]
    kernels = [layers[name]["output"]["kernel"] for name in ("layer_0", "layer_1")]
    assert not np.array_equal(*kernels)
    start = (f"--config.init_from={teacher}", "--config.init_layers=(1,)")
    given = (f"--config.task.teacher={teacher}", "--config.task.teacher_share=1")
    terms = [f"--config.{name}={value}" for name, value in TERMS.items()]
    rest = (*given, *terms, "--config.optimizer.learning_rate=0.0")
    run(taught, tmp_path / "student", *few, *start, *rest)
    lines = read_rows(tmp_path / "student" / "metrics.jsonl")
    first = next(line for line in lines if "teacher_loss" in line)
    assert first["classification_loss"] == 0 < first["teacher_loss"]
    assert {f"teacher_{x}_loss" for x in distillation.LAYER_TERMS} < first.keys()
    shutil.rmtree(teacher)
    kept = weights.read_weights(tmp_path / "student").params["bert"]["encoder"]
    jax.tree.map(np.testing.assert_array_equal, kept["layer_0"], layers["layer_1"])
    student = f"--workdir={tmp_path / 'student'}"
    out, _ = here("--mode=predict", student, f"--input={tmp_path / 'dev.jsonl'}")
    assert out.count("\n") == 37


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["named", "unnamed"])
def test_teacher_with_labels_in_another_order(kind, tmp_path, monkeypatch, caplog):
    """Names are put in order. Of outputs without names, accuracy tells."""
    monkeypatch.chdir(tmp_path)
    fields = {f: 0 for f in TERMS}
    task = create("text", fields)
    params = nn.meta.unbox(initial_params(task.init_params))
    head = params["sequence_classification"]
    rows = task.examples("train")
    kept = [row for row in rows if row["label"] == 0]
    head["bias"] -= 9 * jnp.arange(len(task.labels))  # which is right for these
    exchanged = {name: x[..., ::-1] for name, x in head.items()}
    model = params | {"sequence_classification": exchanged}
    unnamed = layout.default_labels(len(task.labels))
    labels = task.labels[::-1] if kind == "named" else unnamed
    folder = tmp_path / "teacher"
    saved = Weights(task.model_config, model, "BertForSequenceClassification", labels)
    export.export_folder(saved, task.tokenizer, folder, {})
    teacher = create("text", {**fields, "task.teacher": folder}).teacher
    caplog.clear()
    with caplog.at_level("INFO"):
        teacher.log_accuracy(kept)
    accuracy, *rest = [x for x in caplog.messages if "task.teacher" in x]
    rows = f"its accuracy on {len(kept)} training rows is"
    if kind == "named":
        assert f"{rows} 1" in accuracy and not rest
    else:
        assert f"{rows} 0" in accuracy and "below chance" in rest[0]


@pytest.mark.slow
def test_teacher_that_does_not_fit_is_refused_in_a_line(taught, plain, tmp_path):
    short = "--config.train.num_steps=1"
    task = tasks.create_task(configuration.load_config(str(taught), []))
    task.resolve()
    save(task, initial_params(task.init_params), tmp_path / "teacher")
    for path in (tmp_path / "train.jsonl", tmp_path / "dev.jsonl"):
        path.write_text(path.read_text().replace('"two"', '"second"'))
    teacher = f"--config.task.teacher={tmp_path / 'teacher'}"
    for arguments, message in (
        ([teacher], "its labels are one, two, but the task has one, second; train"),
        ([f"--config.task.teacher={plain}"], "without sequence_classification/"),
        (["--config.init_layers=(1,)"], "has the layers 0 to 0"),
    ):
        _, err = run(taught, tmp_path / "run", short, *arguments, status=2)
        assert message in err.splitlines()[-1]
