"""GPT's fine-tuning against a NumPy transcription of the published train.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.convert import layout
from bert_jax.data.rows import Rows
from bert_jax.families.gpt.finetuning import LM_LOSS
from bert_jax.families.gpt.layout import LAYOUT as GPT
from bert_jax.families.gpt.vocabulary import BYTE_PAIRS
from tests.micro import initial_params
from tests.tasks.small_squad import gold_answer, squad_row
from tests.tasks.small_texts import choice_row, text_row

TEXT = "the quick brown fox jumps over the lazy dog while seven cats watch it go"
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 128, "max_position_embeddings": 24}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    learnt = BYTE_PAIRS.train([TEXT] * 2, 120, lowercase=True)
    learnt.model.save(str(folder))
    return folder / "vocab.json"


@pytest.fixture
def make(pieces):
    def task(spec, *fields):
        sizes = [f"--config.model.{name}={value}" for name, value in SIZES.items()]
        own = (f"--config.tokenizer.vocab_file={pieces}", *sizes)
        fields = ("--config.task.max_seq_length=20", *own, *fields)
        spec = f"configs/finetune/{spec},model=gpt,recipe=tiny"
        return tasks.create_task(configuration.load_config(spec, fields))

    return task


def ids_of(task, text):
    task.tokenizer.encode_special_tokens = True
    return task.tokenizer.encode(text, add_special_tokens=False).ids


def compare(task, examples, groups):
    """The loss of a batch, padded to the limit, against the published one's.

    Args:
      groups: sequences of each example.
    """
    features = task.encode(examples, "train")
    loss, h, X, head = hidden(task, features, groups)
    clf_token = task.tokenizer.token_to_id("_classify_")
    return loss, h[np.arange(len(X)), np.argmax(clf_token == X, 1)], head, features


def hidden(task, features, groups=1):
    """Returns the task's loss, the published model's vectors, its tokens, and the
    head. Checks the language model's loss."""
    rows = Rows(features, task.padding)
    batch = rows.batch(np.arange(len(features) + 1), task.config.task.max_seq_length)
    params = initial_params(task.init_params)
    rng = np.random.default_rng(0)
    loud = lambda x: 4 * np.asarray(x) + 0.1 * rng.normal(size=x.shape)  # noqa: E731
    params = jax.tree.map(lambda x: np.float32(loud(x)), params)
    placed = {name: jnp.asarray(column) for name, column in batch.items()}
    sums = jax.jit(task.loss)(params, placed, None)
    weights = jax.jit(task.loss_weights)(placed)
    found = {name: float(sums[name] / weights[name]) for name in sums}

    model = layout.Weights(task.model_config, params, "OpenAIGPTLMHeadModel")
    t = {k: v.astype(np.float64) for k, v in GPT.tensors(model).items()}
    count = len(features) * groups
    X = batch["input_ids"][:-1].reshape(count, -1)
    M = batch["input_mask"][:-1].reshape(count, -1)
    h, lm_losses = published(t, X, M, 2, 4)
    head = {name: np.float64(x) for name, x in params[task.heads[0]].items()}
    assert lm_losses.std() > 0.1
    assert found.keys() == {task.definition.loss_name, LM_LOSS}
    assert found[LM_LOSS] == pytest.approx(0.5 * lm_losses.mean(), rel=1e-5)
    return found[task.definition.loss_name], h, X, head


@pytest.mark.slow
def test_choices(make):
    """As for ROCStories: each ending after the story, the softmax over both."""
    task, story = make("swag.py:"), "seven cats watch"
    examples = [
        choice_row("the quick fox", ("jumps over it", "go"), 0),
        choice_row(f"{story} the lazy dog while", ("it go", "the fox jumps"), 1),
        choice_row("a dog", ("brown", "quick lazy brown"), 1),
    ]
    loss, clf_h, head, features = compare(task, examples, 2)
    logits = (clf_h @ head["kernel"] + head["bias"]).reshape(-1, 2)
    labels = [example["label"] for example in examples]
    expected = -special.log_softmax(logits, axis=1)[np.arange(3), labels].mean()
    assert loss == pytest.approx(expected, rel=1e-5)
    start, delimiter, end = 117, 118, 119
    wanted = [start, *ids_of(task, "the quick fox"), delimiter]
    wanted += [*ids_of(task, "jumps over it"), end]
    assert features[0].columns["input_ids"][0].tolist() == wanted


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_pairs_in_one_order_and_in_both(make, both):
    task = make("text.py:", f"--config.task.both_orders={both}",
                "--config.task.labels=('no','yes','maybe')")  # fmt: skip
    examples = [
        text_row(0, "the quick fox", "jumps over it", 2),
        text_row(1, "seven cats watch it go " * 3, "the lazy dog while " * 3, 0),
        text_row(2, "a dog", None, 1),
    ]
    loss, clf_h, head, features = compare(task, examples, 2 if both else 1)
    if both:
        clf_h = clf_h.reshape(3, 2, -1).sum(1)
    logits = clf_h @ head["kernel"] + head["bias"]
    labels = [example["label"] for example in examples]
    expected = -special.log_softmax(logits, axis=1)[np.arange(3), labels].mean()
    assert loss == pytest.approx(expected, rel=1e-5)
    a, b = ids_of(task, "the quick fox"), ids_of(task, "jumps over it")
    orders = [[117, *a, 118, *b, 119], [117, *b, 118, *a, 119]]
    found = features[0].columns["input_ids"].tolist()
    assert found == (orders if both else orders[0])
    assert features[1].columns["input_ids"].shape[-1] == 20
    alone = [117, *ids_of(task, "a dog"), 119]
    found = features[2].columns["input_ids"].tolist()
    assert found == ([alone, alone] if both else alone)
    assert task.row_shape == ((2, 20) if both else (20,))


@pytest.mark.slow
def test_word_is_tagged_at_its_last_piece(make, tmp_path):
    """The first tokens of a word have not seen the rest of it."""
    lines = "the O\nQuickfox B-X\njumps I-X\n\na O\nlazydog B-Y\n"
    (tmp_path / "train.conll").write_text(lines)
    task = make("ner.py:", f"--config.task.train_file={tmp_path / 'train.conll'}")
    task.resolve()
    features = task.encode(task.examples("train"), "train")
    words = [ids_of(task, word) for word in ("the", "quickfox", "jumps")]
    assert len(words[1]) > 1
    wanted = [117, *(i for ids in words for i in ids), 119]
    assert features[0].columns["input_ids"] == wanted
    ends = np.cumsum([len(ids) for ids in words])
    assert features[0].info.tolist() == ends.tolist()
    column = features[0].columns["labels"]
    assert column[ends].tolist() == [0, 1, 3] and np.sum(column >= 0) == 3
    loss, h, _, head = hidden(task, features)
    losses = []
    for row, feature in enumerate(features):
        logits = h[row, feature.info] @ head["kernel"] + head["bias"]
        gold = feature.columns["labels"][feature.info]
        losses += list(-special.log_softmax(logits, 1)[np.arange(len(gold)), gold])
    assert len(losses) == 5
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.slow
def test_question_stands_before_its_context(make):
    """No answer is at `_classify_`, which has seen the context."""
    fields = ("max_query_length=4", "doc_stride=6", "max_seq_length=14")
    task = make("squad.py:version=2.0", *(f"--config.task.{x}" for x in fields))
    context = "the quick brown fox jumps over the lazy dog while seven cats watch it go"
    examples = [
        squad_row("0", "a fox", context, [gold_answer("lazy dog", 35)]),
        squad_row("1", "the cats", "it go", [], impossible=True),
    ]
    features = task.encode(examples, "train")
    ids, question = ids_of(task, context), ids_of(task, "a fox")
    span = ids_of(task, "lazy dog")
    held = 0
    for feature in features[:-1]:
        row, window = feature.columns["input_ids"].tolist(), feature.info
        own = ids[window.span.start : sum(window.span)]
        assert row == [117, *question, 118, *own, 119]
        start, end = (feature.columns[f"{x}_positions"] for x in ("start", "end"))
        if (start, end) != (len(row) - 1, len(row) - 1):
            assert row[start : end + 1] == span
            held += 1
        assert window.null == len(row) - 1
    assert held and len(features) > 2
    loss, h, X, head = hidden(task, features)
    logits = h @ head["kernel"] + head["bias"]
    losses, outputs = [], []
    for row, feature in enumerate(features):
        length = len(feature.columns["input_ids"])
        for side, name in enumerate(("start", "end")):
            logs = special.log_softmax(logits[row, :length, side])
            losses.append(-logs[feature.columns[f"{name}_positions"]])
        outputs.append({f"{name}_logits": logits[row, :, side]
                        for side, name in enumerate(("start", "end"))})  # fmt: skip
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    answers = task.definition.decode_answers(examples, features, outputs)
    last = logits[len(X) - 1, len(features[-1].columns["input_ids"]) - 1]
    assert answers[1].null_score == pytest.approx(last.sum())


def test_published_values():
    spec = "configs/finetune/glue.py:task=qqp,model=gpt"
    config = configuration.load_config(spec, [])
    optimizer, task = config.optimizer, config.task
    assert (optimizer.learning_rate, optimizer.warmup_fraction) == (6.25e-5, 0.002)
    assert (optimizer.name, optimizer.schedule) == ("openai_adam", "openai_linear")
    assert (optimizer.eps, optimizer.weight_decay) == (1e-8, 0.01)
    assert optimizer.clip_norm == 1
    assert (config.train.batch_size, config.train.num_epochs) == (32, 3.0)
    assert (task.lm_coef, task.both_orders) == (0.5, True)


def norm(x, g, b):
    u = x.mean(-1, keepdims=True)
    s = np.square(x - u).mean(-1, keepdims=True)
    return (x - u) / np.sqrt(s + 1e-5) * g + b


def published(t, X, M, n_layer, n_head):
    """Computes train.py's `model`: the vectors and the language model's losses.

    Args:
      t: Tensors under Hugging Face's names, in the released layout.
      X: Tokens [sequences, n_ctx].
      M: 1 for a token.
    """
    n_ctx = X.shape[1]
    names = ("tokens", "positions")
    tokens, positions = (t[f"transformer.{name}_embed.weight"] for name in names)
    we = np.concatenate([tokens, positions[:n_ctx]])
    h = we[X] + we[len(tokens) + np.arange(n_ctx)]
    b = np.tril(np.ones((n_ctx, n_ctx)))
    for layer in range(n_layer):
        own = {k.removeprefix(f"transformer.h.{layer}."): v for k, v in t.items()}

        def conv1d(x, name, own=own):
            return x @ own[f"{name}.weight"] + own[f"{name}.bias"]

        def split(x):
            return x.reshape(*x.shape[:2], n_head, -1).transpose(0, 2, 1, 3)

        q, k, v = map(split, np.split(conv1d(h, "attn.c_attn"), 3, axis=2))
        w = q @ k.transpose(0, 1, 3, 2) / np.sqrt(v.shape[-1])
        w = special.softmax(w * b + -1e9 * (1 - b), axis=-1)
        a = (w @ v).transpose(0, 2, 1, 3).reshape(h.shape)
        n = norm(h + conv1d(a, "attn.c_proj"), own["ln_1.weight"], own["ln_1.bias"])
        x = conv1d(n, "mlp.c_fc")
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        h = norm(n + conv1d(x, "mlp.c_proj"), own["ln_2.weight"], own["ln_2.bias"])
    lm_logits = h[:, :-1] @ we.T
    log_probs = special.log_softmax(lm_logits, axis=-1)
    lm_losses = -np.take_along_axis(log_probs, X[:, 1:, None], axis=-1)[..., 0]
    lm_losses = (lm_losses * M[:, 1:]).sum(1) / M[:, 1:].sum(1)
    return h, lm_losses
