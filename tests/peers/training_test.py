"""Fine-tuning beside torch: a whole run without dropout, and dropout's draws."""

import json

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax import modes
from bert_jax.workdir import metrics
from tests.micro import write_rows
from tests.runs import here

STEPS, WARMUP, RATE = 12, 3, 1e-3
FIELDS = {
    "init_from": "mini",
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "optimizer.name": "adamw",
    "optimizer.eps": 1e-8,
    "optimizer.learning_rate": RATE,
    "optimizer.warmup_fraction": 0.0,
    "optimizer.warmup_steps": WARMUP,
    "task.calibration": "none",
    "task.max_seq_length": 32,
    "train.batch_size": 8,
    "train.num_epochs": 0.0,
    "train.log_every": 1,
    "evaluate.splits": "()",
}
ROWS = [
    {"text": f"the {noun} was {word} in {place}", "label": label}
    for place in ("Paris", "the long cold winter of a small town", "May")
    for noun in ("film", "book", "play")
    for word, label in (("good", 1), ("bad", 0), ("fine", 1), ("dull", 0))
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_run_is_torchs(tmp_path, torch, transformers, kind):
    train = write_rows(tmp_path / "train.jsonl", ROWS)

    def run(name, **fields):
        values = {**FIELDS, "task.train_file": train, "task.kind": kind, **fields}
        flags = [f"--config.{field}={value}" for field, value in values.items()]
        config = "--config=configs/finetune/text.py"
        here(config, f"--workdir={tmp_path / name}", *flags)

    # The first step of a warm-up has rate 0: its head is the one that was drawn.
    run("first", **{"train.num_steps": 1, "optimizer.warmup_steps": 1})
    start = tmp_path / "start"
    here(f"--workdir={tmp_path / 'first'}", "--mode=export", f"--output={start}")
    run("run", **{"init_from": start, "train.num_steps": STEPS})
    ours = metrics.read_metrics(tmp_path / "run", "train")

    model = transformers.AutoModelForSequenceClassification.from_pretrained(start)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    plain = ("bias", "LayerNorm.weight")
    named = [(name.endswith(plain), p) for name, p in model.named_parameters()]
    groups = [
        {"params": [p for is_plain, p in named if is_plain], "weight_decay": 0.0},
        {"params": [p for is_plain, p in named if not is_plain], "weight_decay": 0.01},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: step / WARMUP if step < WARMUP else (STEPS - step) / STEPS,
    )
    task = modes.make_task(None, str(tmp_path / "run"), {}, trains=True)
    task.training_data()
    seed = json.loads((tmp_path / "run" / "config.json").read_text())["seed"]
    batches = task.batches(0, slice(0, FIELDS["train.batch_size"]), seed)
    for line, batch in zip(ours, batches, strict=False):
        tensors = {name: torch.tensor(np.asarray(x)) for name, x in batch.items()}
        labels = tensors["label"]
        found = model(
            input_ids=tensors["input_ids"].long(),
            attention_mask=tensors["input_mask"].long(),
            token_type_ids=tensors["segment_ids"].long(),
            labels=labels.float() if kind == "regression" else labels.long(),
        )
        found.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert line["learning_rate"] == pytest.approx(schedule.get_last_lr()[0])
        # Adam multiplies differences of the last bits where a gradient is near 0.
        assert line["loss"] == pytest.approx(found.loss.item(), rel=2e-4, abs=2e-5)
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=2e-3)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert ours[-1]["loss"] < 0.5 * ours[0]["loss"]


DRAWS = 200
# Names in transformers of parameters that each kind of dropout reaches.
PARTS = {
    "bert/embeddings/word_embeddings/embedding": (
        "bert.embeddings.word_embeddings.weight"
    ),
    "bert/encoder/layer_0/attention/value/kernel": (
        "bert.encoder.layer.0.attention.self.value.weight"
    ),
    "bert/encoder/layer_3/attention/query/kernel": (
        "bert.encoder.layer.3.attention.self.query.weight"
    ),
    "bert/encoder/layer_3/output/kernel": "bert.encoder.layer.3.output.dense.weight",
    "bert/pooler/kernel": "bert.pooler.dense.weight",
    "sequence_classification/kernel": "classifier.weight",
}


@pytest.mark.slow
def test_dropout_is_distributed_as_in_torch(tmp_path, torch, transformers):
    fields = FIELDS | {
        "model.hidden_dropout_prob": 0.1,
        "model.attention_probs_dropout_prob": 0.1,
        "task.train_file": write_rows(tmp_path / "train.jsonl", ROWS),
        "train.num_steps": 1,
        "optimizer.warmup_steps": 1,  # rate 0: the head is as it was drawn
    }
    run, start = tmp_path / "run", tmp_path / "start"
    flags = [f"--config.{field}={value}" for field, value in fields.items()]
    here("--config=configs/finetune/text.py", f"--workdir={run}", *flags)
    here(f"--workdir={run}", "--mode=export", f"--output={start}")
    task = modes.make_task(None, str(run), {}, trains=True)
    task.training_data()
    batch = jax.tree.map(jax.numpy.asarray, next(task.batches(0, slice(0, 8), 0)))
    params = bert_jax.load(str(run)).params

    def loss(params, key):
        return sum(task.loss(params, batch, key).values()) / len(batch["label"])

    @jax.jit
    def draw(key):
        value, gradients = jax.value_and_grad(loss)(params, key)
        by_name = flatten_dict(gradients, sep="/")
        return [value, *(jax.numpy.linalg.norm(by_name[name]) for name in PARTS)]

    ours = np.array([jax.device_get(draw(jax.random.key(i))) for i in range(DRAWS)])

    model = transformers.AutoModelForSequenceClassification.from_pretrained(start)
    model.train()
    torch.manual_seed(0)
    named = dict(model.named_parameters())
    tensors = {name: torch.tensor(np.asarray(x)).long() for name, x in batch.items()}
    theirs = []
    for _ in range(DRAWS):
        model.zero_grad()
        found = model(
            input_ids=tensors["input_ids"],
            attention_mask=tensors["input_mask"],
            token_type_ids=tensors["segment_ids"],
            labels=tensors["label"],
        )
        found.loss.backward()
        norms = [named[name].grad.norm().item() for name in PARTS.values()]
        theirs.append([found.loss.item(), *norms])
    theirs = np.array(theirs)

    # Standard errors of a mean and, near a normal distribution, of a logarithm of a
    # standard deviation. A side without dropout of attention is 10 of them away.
    error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / DRAWS)
    assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4 * error)
    spread = np.log(ours.std(axis=0) / theirs.std(axis=0))
    assert np.all(np.abs(spread) < 4 / np.sqrt(DRAWS))
