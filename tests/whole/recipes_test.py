"""Recipes of pre-training and fine-tuning that a user writes as config files, by their
numbers: against NumPy, or against a run without them."""

import functools
import itertools
import math
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from scipy import special

from bert_jax.commands import sweep
from bert_jax.config import configuration
from bert_jax.models.attention import AttentionMask
from bert_jax.registry import ATTENTIONS
from bert_jax.training import setup, sharding
from bert_jax.training.step import Step
from bert_jax.training.watch import find_watchers
from tests import micro_data
from tests.close import GRADIENT_TERMS, assert_close
from tests.training.optimizer_muon_test import reference

pytestmark = pytest.mark.slow
RATE = 0.01
TEXTS = {}

TEXTS["zloss"] = '''"""z-loss (Chowdhery et al. 2022) as an objective."""
import jax
import jax.numpy as jnp

from bert_jax.tasks.objectives import MASKED_LM, OBJECTIVES, Objective, masked_targets

extends = "small"
COEFFICIENT = 1e-2


def losses(outputs, batch):
    z = jax.nn.logsumexp(outputs["masked_lm_logits"], axis=-1)
    total = jnp.sum(masked_targets(batch).weights * z**2)
    return MASKED_LM.losses(outputs, batch) | {"z_loss": COEFFICIENT * total}


def weights(batch):
    found = MASKED_LM.weights(batch)
    return found | {"z_loss": found["masked_lm_loss"]}


OBJECTIVES["zloss"] = Objective(losses, weights)


def get_config(config):
    config.task.objective = "zloss"
'''
TEXTS["child"] = """extends = "zloss"


def get_config(config):
    config.seed = 3
"""
TEXTS["imp"] = """import zloss  # adds it to OBJECTIVES

extends = "small"


def get_config(config):
    config.task.objective = "zloss"
"""
TEXTS["pmi"] = '''"""PMI masking (Levine et al. 2021): bigrams are masked as one."""
import functools

import numpy as np

from bert_jax.config.field import Field
from bert_jax.data.masking import MASKINGS, replacement_ids

extends = "small"


@functools.cache
def bigrams(path, vocab):
    first, second = np.load(path).astype(np.int64).T
    return np.unique(first * vocab + second)


def pmi(texts, uniforms, masking):
    ids, candidates, vocab = texts.input_ids, texts.candidates, texts.continuation.size
    length = ids.shape[1]
    order, action, piece = np.split(uniforms(3 * length), 3, axis=1)
    keys = ids[:, :-1].astype(np.int64) * vocab + ids[:, 1:]
    bound = np.isin(keys, bigrams(masking.pmi_file, vocab))
    starts = candidates.copy()  # a token bound to the one before it starts no unit
    starts[:, 1:] &= ~(bound & candidates[:, :-1])
    unit = np.cumsum(starts, axis=1) - 1
    chosen = np.zeros_like(candidates)
    for row, left in enumerate(texts.budget):
        first = np.flatnonzero(starts[row])
        for start in first[np.argsort(order[row, first], kind="stable")]:
            own = candidates[row] & (unit[row] == unit[row, start])
            if own.sum() <= left:
                chosen[row] |= own
                left -= own.sum()
    begin = np.maximum.accumulate(np.where(starts, np.arange(length), 0), axis=1)
    row, column = np.nonzero(chosen)
    replaced = ids.copy()
    replaced[row, column] = replacement_ids(
        ids[row, column], action[row, begin[row, column]], piece[row, column],
        texts, masking,
    )
    return chosen, replaced


MASKINGS["pmi"] = pmi


def get_config(config):
    config.masking.name = "pmi"
    config.masking.pmi_file = Field("bigrams.npy", path=True)
'''
TEXTS[
    "unfreeze"
] = '''"""Gradual unfreezing from the top, and rates that fall from layer
to layer (Howard and Ruder 2018)."""
import re

import jax.numpy as jnp
import optax

from bert_jax.config.field import Field
from bert_jax.training.optimizer import OPTIMIZERS, adamw, map_named

extends = "small"


def depth(name, layers):
    if name.startswith("bert/embeddings"):
        return layers + 1
    found = re.search(r"encoder/layer_([0-9]+)/", name)
    return layers - int(found[1]) if found else 0


def gradual(fields, schedule, mask):
    def update(updates, count, params=None):
        layers = len(updates["bert"]["encoder"])

        def one(name, update):
            steps = depth(name, layers) * fields.unfreeze_every
            factor = fields.layer_decay ** depth(name, layers)
            return update * jnp.where(count >= steps, factor, 0.0)

        return map_named(one, updates), count + 1

    counted = optax.GradientTransformation(lambda _: jnp.zeros((), jnp.int32), update)
    return optax.chain(adamw(fields, schedule, mask), counted)


OPTIMIZERS["gradual"] = gradual


def get_config(config):
    config.optimizer.name = "gradual"
    config.optimizer.unfreeze_every = Field(10, "[1, inf)")
    config.optimizer.layer_decay = Field(0.8, "(0, 1]")
'''
TEXTS["mup"] = '''"""muP (Yang et al. 2022), Adam's table: m is hidden_size / BASE."""
import flax.linen as nn
import optax

from bert_jax.config.field import Field
from bert_jax.family import FAMILIES, Family
from bert_jax.models.attention import einsum_attention
from bert_jax.models.heads import BertForPreTraining, MaskedLmHead
from bert_jax.models.layers import shared_initializer
from bert_jax.registry import ATTENTIONS
from bert_jax.training.optimizer import OPTIMIZERS, map_named

extends = "small"
BASE = 16
WIDTHS = ("embed", "heads", "head_dim", "mlp", "pooled")


class MupHead(MaskedLmHead):
    def vocabulary_logits(self, hidden, embedding, training=False):
        hidden = hidden * (BASE / self.config.hidden_size)
        return super().vocabulary_logits(hidden, embedding, training)


class MupForPreTraining(BertForPreTraining):
    lm_head = MupHead


def initializer(config, names):
    stddev = config.initializer_range
    if names[0] in WIDTHS and names[-1] in WIDTHS:
        stddev *= (BASE / config.hidden_size) ** 0.5
    return shared_initializer(nn.initializers.truncated_normal, stddev)


def attention(query, *rest):
    scale = 8 / query.shape[-1] ** 0.5  # einsum divides by the root once more
    return einsum_attention(query * scale, *rest)


def mup_adam(fields, schedule, mask):
    def scale(name, update):
        names = mask.axes[name]
        is_hidden = name.endswith("kernel") and names[-1] in WIDTHS
        return update * fields.mup_factor if is_hidden else update

    return optax.chain(
        optax.scale_by_adam(fields.beta1, fields.beta2, fields.eps),
        optax.stateless(lambda updates, _: map_named(scale, updates)),
        optax.scale_by_learning_rate(schedule),
    )


ATTENTIONS["mup"] = attention
OPTIMIZERS["mup_adam"] = mup_adam
FAMILIES["mup"] = Family(
    "mup", "a BERT in muP", "",
    for_pretraining=MupForPreTraining, model={"initializer": initializer},
)


def get_config(config, hidden="64"):
    config.model.architecture = config.model.attention = "mup"
    config.model.hidden_size = int(hidden)
    config.optimizer.name, config.optimizer.weight_decay = "mup_adam", 0.0
    config.optimizer.mup_factor = Field(BASE / int(hidden), "(0, 1]")
'''
PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
(text,) = re.findall(r"```python\n# contrast\.py\n(.*?)```", PAGE.read_text(), re.S)
TEXTS["contrast"] = text.replace('extends = "tiny"', 'extends = "small"')

TEXTS[
    "moe"
] = '''"""Experts (Fedus et al. 2021, top 1, all computed), and their balance."""
import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config.field import Field
from bert_jax.models.attention import self_attention
from bert_jax.models.encoder import Layer
from bert_jax.models.layers import gelu, kernel_initializer, layer_norm
from bert_jax.registry import LAYERS
from bert_jax.tasks import TASKS
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.objectives import masked_targets
from bert_jax.tasks.pretraining import Pretraining

extends = "small"


class Experts(nn.Module):
    config: object

    @nn.compact
    def __call__(self, hidden):
        config, count = self.config, self.config.field("experts")
        width, inner = config.hidden_size, config.intermediate_size

        def weights(name, shape, *names):
            return jnp.asarray(
                self.param(name, kernel_initializer(config, names), shape)
            )

        router = weights("router", (width, count), "embed", None)
        up = weights("up", (count, width, inner), "experts", "embed", "mlp")
        down = weights("down", (count, inner, width), "experts", "mlp", "embed")
        probs = jax.nn.softmax(hidden @ router)
        top = jax.nn.one_hot(probs.argmax(axis=-1), count)
        each = jnp.einsum("bld,edf->blef", hidden, up)
        each = jnp.einsum("blef,efd->bled", gelu(each), down)
        return jnp.einsum("bled,ble->bld", each, probs * top), top, probs


class Switch(Layer):
    @nn.compact
    def __call__(self, hidden, index, mask, key):
        config = self.config
        attended = self_attention(config, name="attention")(hidden, mask, None)
        hidden = layer_norm(config, name="attention_layer_norm")(hidden + attended)
        output, top, probs = Experts(config, name="experts")(hidden)
        real = (mask.key_ids > 0)[..., None]
        self.sow("intermediates", "top", (top * real).sum(axis=1))
        self.sow("intermediates", "probs", (probs * real).sum(axis=1))
        hidden = layer_norm(config, name="layer_norm")(hidden + output)
        return hidden, hidden


class Moe(Pretraining):
    compares_rows = True  # the balance is of the whole batch, not a sum over rows

    def vectors(self, params, batch, key):
        names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
        given = ({"params": params}, *map(batch.get, names), key)
        outputs, kept = self.model.apply(*given, mutable=["intermediates"])
        ids, weights = masked_targets(batch)
        each = weights * cross_entropy(outputs["masked_lm_logits"], ids)
        layers = kept["intermediates"]["bert"]["encoder"].values()
        top, probs = (
            jnp.stack([layer[name][0] for layer in layers], axis=1)
            for name in ("top", "probs")
        )
        return {"lm": each.sum(axis=1), "top": top, "probs": probs}

    def batch_loss(self, vectors, batch):
        tokens, experts = batch["input_mask"].sum(), self.config.model.experts
        top, probs = (vectors[name].sum(axis=0) / tokens for name in ("top", "probs"))
        balance = self.config.task.balance * experts * (top * probs).sum()
        return {"masked_lm_loss": vectors["lm"].sum(), "balance_loss": balance}

    def loss_weights(self, batch):
        return super().loss_weights(batch) | {"balance_loss": jnp.float32(1)}


LAYERS["switch"] = Switch
TASKS["moe"] = Moe


def get_config(config):
    config.task.name, config.task.nsp_loss = "moe", False
    config.task.balance = Field(0.01)
    config.model.layer = "switch"
    config.model.experts = Field(3, "[1, 64]")
'''
TEXTS[
    "watch"
] = '''"""The norm of the gradient of each layer, and of the parts around them."""
import re
from collections import defaultdict

import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from bert_jax.registry import WATCHERS
from bert_jax.training.watch import Watcher

extends = "small"


def norms_of_layers(params, grads, updates):
    squares = defaultdict(float)
    for name, gradient in flatten_dict(grads, sep="/").items():
        found = re.search(r"layer_[0-9]+|embeddings", name)
        squares[found[0] if found else "heads"] += jnp.sum(gradient**2)
    return {f"grads_{part}": jnp.sqrt(total) for part, total in squares.items()}


WATCHERS["layers"] = Watcher(in_step=norms_of_layers)


def get_config(config):
    config.train.watch = 10
    config.train.watchers = ("layers",)
'''


@pytest.fixture
def make(micro, tmp_path, monkeypatch):
    """Writes all recipes, and returns a function that opens one: the training step on
    one device, the first state and the first batch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copy(micro, "small.py")
    for name, text in TEXTS.items():
        Path(f"{name}.py").write_text(text)

    def make(name, *flags):
        config = configuration.load_config(f"{name}.py", flags)
        task = setup.build_task(config, tmp_path / "run", from_data=True)
        task.training_data()
        step = Step(task, sharding.make_mesh(task.config, devices=jax.devices()[:1]))
        batch = next(iter(task.batches(0, slice(None), 0)))
        return step, step.first_state(), batch

    yield make
    sys.modules.pop("zloss", None)


def compiled(step, state, batch, parts=1, watchers=()):
    """Returns a function from a state, which it keeps, to the next and the metrics."""
    placed = sharding.place_batch(batch, step.mesh, len(batch["input_ids"]))
    program = step.trace(state, placed, parts, watchers).lower().compile()
    rest = (placed, step.seeds.array, np.float32(RATE), step.constants)

    def take(state):
        return program(jax.tree.map(jnp.copy, state), *rest)

    return take


def moved(before, after):
    """Returns the change of each parameter, by its path."""
    after = flatten_dict(jax.device_get(after.params), sep="/")
    before = flatten_dict(jax.device_get(before.params), sep="/")
    return {name: after[name] - before[name] for name in before}


def losses(task, params, batch, key=None):
    """Returns a batch's losses by name, as `jax.jit` and `jax.grad` take them."""
    if task.compares_rows:
        sums = task.batch_loss(task.vectors(params, batch, key), batch)
    else:
        sums = task.loss(params, batch, key)
    weights = task.loss_weights(batch)
    return {name: value / weights[name] for name, value in sums.items()}


def gradient(task, params, batch):
    """Returns the gradient of the sum of the losses, on the host."""

    def total(params, batch):
        return sum(losses(task, params, batch).values())

    return jax.device_get(jax.jit(jax.grad(total))(params, batch))


def masked_lm_loss(logits, batch):
    """Returns the mean cross entropy of the masked tokens."""
    logits, ids = np.float64(logits), batch["masked_lm_ids"][..., None]
    own = np.take_along_axis(logits, ids, axis=-1)[..., 0]
    each = special.logsumexp(logits, axis=-1) - own
    return np.average(each, weights=batch["masked_lm_weights"])


@pytest.mark.parametrize("name", ["child", "imp"])
def test_objective_of_a_file_that_is_extended_or_imported(make, name):
    def z_loss():
        """Returns the loss, and that with the coefficient 1."""
        step, state, batch = make(name)
        found, outputs = jax.jit(
            lambda params, batch: (
                losses(step.task, params, batch),
                step.task.apply(params, batch, None),
            )
        )(state.params, batch)
        logits = outputs["masked_lm_logits"]
        lm = masked_lm_loss(logits, batch)
        assert found["masked_lm_loss"] == pytest.approx(lm, rel=1e-5)
        squares = special.logsumexp(np.float64(logits), axis=-1) ** 2
        weights = batch["masked_lm_weights"]
        return float(found["z_loss"]), np.average(squares, weights=weights)

    def folders():
        plan = sweep.plan(*sweep.parse(["--grid=seed=0,1", f"--config={name}.py"]))
        return {run.folder.name for run in plan}

    before, (found, wanted) = folders(), z_loss()
    assert found == pytest.approx(1e-2 * wanted, rel=1e-5)
    text = Path("zloss.py").read_text()
    Path("zloss.py").write_text(text.replace("= 1e-2", "= 3e-2"))
    sys.modules.pop("zloss", None)  # as in a new process
    assert not folders() & before
    assert z_loss()[0] == pytest.approx(3e-2 * wanted, rel=1e-5)


def test_pmi_masks_whole_bigrams_within_the_budget(make):
    def texts(batch):
        ids = batch["input_ids"].copy()
        for row, positions in enumerate(batch["masked_lm_positions"]):
            real = batch["masked_lm_weights"][row] > 0
            ids[row, positions[real]] = batch["masked_lm_ids"][row, real]
        return ids

    rows = "--config.train.batch_size=64"
    step, _, batch = make("small", rows)
    tokenizer = step.task.tokenizer
    special_ids = {tokenizer.token_to_id(x) for x in ("[PAD]", "[CLS]", "[SEP]")}
    pairs = Counter(
        pair
        for row in texts(batch).tolist()
        for pair in itertools.pairwise(row)
        if not special_ids & {*pair}
    )
    known = {pair for pair, _ in pairs.most_common(40)}
    np.save("own.npy", [*known])
    step, _, masked = make("pmi", rows, "--config.masking.pmi_file=own.npy")
    whole = kept = 0
    for row, ids in enumerate(texts(masked).tolist()):
        assert ids == texts(batch)[row].tolist()
        real = masked["masked_lm_weights"][row] > 0
        chosen = {*masked["masked_lm_positions"][row, real].tolist()}
        units: list[list[int]] = []
        for place, token in enumerate(ids):
            if token in special_ids:
                continue
            if (
                units
                and units[-1][-1] == place - 1
                and (ids[place - 1], token) in known
            ):
                units[-1].append(place)
            else:
                units.append([place])
        budget = max(1, round(0.15 * int(masked["input_mask"][row].sum())))
        left = min(6, budget) - len(chosen)
        assert left >= 0
        for unit in units:
            assert {*unit} <= chosen or not {*unit} & chosen
            assert {*unit} <= chosen or len(unit) > left  # or it would fit
            if {*unit} <= chosen and len(unit) > 1:
                new = masked["input_ids"][row, unit]
                is_mask = new == tokenizer.token_to_id("[MASK]")
                assert is_mask.all() or not is_mask.any()
                whole, kept = whole + 1, kept + (new == np.array(ids)[unit]).all()
    assert whole > 20 > kept > 0


def test_layers_unfreeze_in_turn_with_rates_that_fall(make):
    micro_data.write_inputs("text", Path())
    shutil.copy("in/micro.py", "small.py")
    flags = ("--config.model.num_hidden_layers=2", "--config.task.pad_to_max=True")
    flags += ("--config.model.hidden_dropout_prob=0",)
    flags += ("--config.model.attention_probs_dropout_prob=0",)
    own = ("--config.optimizer.unfreeze_every=2", "--config.optimizer.layer_decay=0.5")
    step, state, batch = make("unfreeze", *flags, *own)
    take = compiled(step, state, batch)
    plain_step, plain, _ = make("small", *flags, "--config.optimizer.name=adamw")
    take_plain = compiled(plain_step, plain, batch)
    depths = {"layer_1": 1, "layer_0": 2, "embeddings": 3}
    for number in range(8):
        clip, (adam, count), *rest = state.opt_state
        assert int(count) == number
        plain = state._replace(opt_state=(clip, adam, *rest))
        after, after_plain = take(state)[0], take_plain(plain)[0]
        wanted = moved(plain, after_plain)
        for name, change in moved(state, after).items():
            found = [d for part, d in depths.items() if f"/{part}/" in f"/{name}"]
            depth = found[0] if found else 0
            if number < 2 * depth:
                assert not change.any(), name
            else:
                np.testing.assert_allclose(
                    change, 0.5**depth * wanted[name], atol=3e-7, err_msg=name
                )
            assert name.endswith("bias") or np.abs(wanted[name]).max() > 1e-3
        state = after


def test_mup_scales_initial_weights_and_logits(make):
    step, state, batch = make("mup")
    plain_step, plain, _ = make("mup", "--config.model.architecture=bert")
    ours, theirs = (flatten_dict(x.params, sep="/") for x in (state, plain))
    matrices = {x for x in ours if x.endswith("kernel")} - {"next_sentence/kernel"}
    assert len(matrices) == 8  # the layer's six, the pooler's, the head's
    for name in ours:
        factor = 0.5 if name in matrices else 1.0  # the root of 16 / 64
        np.testing.assert_allclose(ours[name], factor * theirs[name], rtol=1e-6)
    kernel = ours["bert/encoder/layer_0/intermediate/kernel"]
    # A normal distribution that is cut at two deviations has 0.8796 of its deviation.
    stddev = 0.8796 * 0.05 / 2
    assert np.std(kernel) == pytest.approx(stddev, rel=0.05)
    params = jax.tree.map(lambda x: x + 0.1, state.params)  # the bias too
    logits, whole = (
        jax.jit(x.task.apply)(params, batch, None)["masked_lm_logits"]
        for x in (step, plain_step)
    )
    assert_close(logits - 0.1, (whole - 0.1) / 4)


def test_mup_scales_rates_and_attention(make):
    step, state, batch = make("mup")
    plain_step, plain, _ = make("mup", "--config.optimizer.name=adamw")
    change = moved(state, compiled(step, state, batch)(state)[0])
    wanted = moved(plain, compiled(plain_step, plain, batch)(plain)[0])
    for name in change:
        is_hidden = name.endswith("kernel") and "next_sentence" not in name
        factor = 1 / 4 if is_hidden else 1
        np.testing.assert_allclose(change[name], factor * wanted[name], atol=2e-7)
        assert name.endswith("bias") or np.abs(wanted[name]).max() > RATE / 2
    query, keys, values = np.random.default_rng(0).normal(size=(3, 2, 5, 2, 16))
    mask = AttentionMask.from_input_mask(jnp.array([[1] * 5, [1, 1, 1, 0, 0]]))
    given = (*map(jnp.float32, (query, keys, values)), mask, 0.0, None)
    mixed, probabilities = ATTENTIONS["mup"](*given)
    scores = np.einsum("bqhd,bkhd->bhqk", query, keys) * 8 / 16
    scores[1, ..., 3:] = -np.inf
    shares = special.softmax(scores, axis=-1)
    assert_close(probabilities, shares)
    assert_close(mixed, np.einsum("bhqk,bkhd->bqhd", shares, values))


def test_contrast_next_to_the_masked_lm_is_numpys(make):
    step, state, batch = make("contrast", "--config.model.hidden_dropout_prob=0.1")
    task, key = step.task, jax.random.key(1)

    @jax.jit
    def compute(params, batch):
        outputs = [
            task.apply(params, batch, each, ("hidden",))
            for each in jax.random.split(key)
        ]
        return losses(task, params, batch, key), outputs

    found, (one, two) = compute(state.params, batch)
    lm = masked_lm_loss(one["masked_lm_logits"], batch)
    assert found["masked_lm_loss"] == pytest.approx(lm, rel=1e-5)
    mask = np.float64(batch["input_mask"])[..., None]
    a, b = ((mask * x["states"][-1]).sum(axis=1) / mask.sum(axis=1) for x in (one, two))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    assert not np.allclose(a, b, atol=1e-3)  # two dropouts
    logits = a @ b.T / 0.05
    wanted = 0.1 * (special.logsumexp(logits, axis=1) - np.diag(logits)).mean()
    assert found["contrast_loss"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "own", "parts"),
    [("contrast", "contrast_loss", 2), ("moe", "balance_loss", 4)],
)
def test_loss_of_a_whole_batch_is_the_same_in_parts(make, name, own, parts):
    step, state, batch = make(name, "--config.model.hidden_dropout_prob=0.0")
    whole, found = compiled(step, state, batch)(state)
    cut, found_cut = compiled(step, state, batch, parts)(state)
    key = jax.random.key(0)
    alone = jax.jit(functools.partial(losses, step.task))(state.params, batch, key)
    assert {*alone} == {"masked_lm_loss", own}
    for loss, value in alone.items():
        assert found[loss] == pytest.approx(float(value), rel=1e-5)
    for loss in (*alone, "loss", "grad_norm"):
        assert found_cut[loss] == pytest.approx(float(found[loss]), rel=1e-5)
    # Where a gradient is as small as Adam's epsilon its rounding moves a parameter.
    for one, other in zip(
        jax.tree.leaves(cut.params), jax.tree.leaves(whole.params), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=RATE / 100)


def test_experts_and_their_balance_are_numpys(make):
    step, state, batch = make("moe", "--config.model.num_hidden_layers=2")
    task = step.task
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")

    @jax.jit
    def compute(params, batch):
        given = ({"params": params}, *map(batch.get, names))
        seen = {"mutable": ["intermediates"], "capture_intermediates": True}
        return losses(task, params, batch), task.model.apply(*given, **seen)

    found, (outputs, kept) = compute(state.params, batch)
    lm = masked_lm_loss(outputs["masked_lm_logits"], batch)
    assert found["masked_lm_loss"] == pytest.approx(lm, rel=1e-5)
    real, balance = batch["input_mask"].astype(bool), 0.0
    for layer in ("layer_0", "layer_1"):
        own = state.params["bert"]["encoder"][layer]["experts"]
        made = kept["intermediates"]["bert"]["encoder"][layer]
        router, up, down = (np.float64(own[x]) for x in ("router", "up", "down"))
        hidden = np.float64(made["attention_layer_norm"]["__call__"][0])
        probs = special.softmax(hidden @ router, axis=-1)
        wanted = np.zeros_like(hidden)
        for row, place in np.ndindex(real.shape):
            expert = probs[row, place].argmax()
            inner = hidden[row, place] @ up[expert]
            inner = inner * (1 + special.erf(inner / math.sqrt(2))) / 2
            wanted[row, place] = probs[row, place, expert] * (inner @ down[expert])
        assert_close(made["experts"]["__call__"][0][0], wanted)
        share = np.bincount(probs.argmax(axis=-1)[real], minlength=3) / real.sum()
        assert share.max() < 1  # more than one expert is chosen
        balance += 0.01 * 3 * share @ probs[real].mean(axis=0)
    assert found["balance_loss"] == pytest.approx(balance, rel=1e-5)


def test_muon_has_a_matrix_of_each_expert_of_a_layer(make):
    flags = ("name=muon", "eps=1e-7", "clip_norm=0.0", f"learning_rate={RATE}")
    step, state, batch = make("moe", *(f"--config.optimizer.{x}" for x in flags))
    after = compiled(step, state, batch)(state)[0]
    grads = gradient(step.task, state.params, batch)
    before, after, grads = (
        jax.device_get(x)["bert"]["encoder"]["layer_0"]["experts"]
        for x in (state.params, after.params, grads)
    )
    for name, inputs in (("up", 32), ("down", 64)):
        for expert in range(3):
            given = (before[name][expert], [np.float64(grads[name][expert])], inputs)
            wanted = reference(step.task.config, *given)
            assert_close(after[name][expert], wanted, terms=GRADIENT_TERMS)


def test_watched_norms_of_layers_are_those_of_the_gradient(make):
    """tests/training/watch_test.py has the lines of a run."""
    step, state, batch = make("watch", "--config.model.num_hidden_layers=2")
    watchers = find_watchers(step.task.config.train.watchers)
    _, found = compiled(step, state, batch, watchers=watchers)(state)
    grads = flatten_dict(gradient(step.task, state.params, batch), sep="/")
    starts = {
        "embeddings": "bert/embeddings/",
        "layer_0": "bert/encoder/layer_0/",
        "layer_1": "bert/encoder/layer_1/",
        "heads": ("masked_lm/", "next_sentence/", "bert/pooler/"),
    }
    assert {*found["watched"]} == {f"grads_{part}" for part in starts}
    for part, start in starts.items():
        own = [np.float64(x) for name, x in grads.items() if name.startswith(start)]
        norm = math.sqrt(sum((x**2).sum() for x in own))
        assert found["watched"][f"grads_{part}"] == pytest.approx(norm, rel=1e-4)
