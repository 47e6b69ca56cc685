"""What GLUE and a user's texts share: sequences, losses, answers, several in a row."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

from bert_jax.config import recipes
from bert_jax.data.rows import Rows
from bert_jax.serving import server
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.text import Text
from bert_jax.training.log import count_positions
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import error_line, initial_params, read_rows, write_rows
from tests.tasks.small_texts import evaluated, resolved, shrunk, text_row

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
CLS, SEP, A, B, C, D = 2, 3, 5, 6, 7, 8


def texts_task(config, examples):
    """A task with its records given."""

    class Texts(Text):
        def read_rows(self, split):
            return examples if split in ("train", "dev") else None

        def number_labels(self, rows):
            return rows

    return Finetuning(Texts, config)


@pytest.fixture
def make(tmp_path):
    def task(examples=(), length=8, labels=("no", "yes"), **fields):
        config = recipes.start_finetuning("text", "tiny", "bert")
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        config.model.update(sizes)
        vocabulary = tmp_path / "vocab.txt"
        vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES))
        config.tokenizer.vocab_file = str(vocabulary)
        config.task.max_seq_length = length
        config.task.labels = labels
        config.task.update(fields)
        return texts_task(config, list(examples))

    return task


def sequences(task, *examples):
    features = task.encode([text_row(0, *texts) for texts in examples], "dev")
    return [
        (f.columns["input_ids"].tolist(), f.columns["segment_ids"].tolist())
        for f in features
    ]


def test_text_and_a_pair(make):
    assert sequences(make(), ("a b",), ("a b", "c"), ("", "c"), ("a", "")) == [
        ([CLS, A, B, SEP], [0, 0, 0, 0]),
        ([CLS, A, B, SEP, C, SEP], [0, 0, 0, 0, 1, 1]),
        ([CLS, SEP, C, SEP], [0, 0, 1, 1]),
        # Ignores a second text without tokens (run_classifier.py: `if tokens_b`).
        ([CLS, A, SEP], [0, 0, 0]),
    ]


def test_special_tokens_in_a_text_are_text(make):
    ((ids, _),) = sequences(make(length=16), ("a [SEP] b",))
    assert ids.count(SEP) == 1


def test_texts_that_are_cut_are_counted(make):
    task = make()
    assert sequences(task, ("a b c d a b c d",), ("",), ("a b c d", "a b c d")) == [
        ([CLS, A, B, C, D, A, B, SEP], [0] * 8),
        ([CLS, SEP], [0, 0]),
        ([CLS, A, B, C, SEP, A, B, SEP], [0] * 5 + [1] * 3),
    ]
    assert task.notices == {"dev: texts longer than max_seq_length, cut": 2}


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("head", [A, B, C, D, A, B]),
        ("tail", [C, D, A, B, C, D]),
        ("head_tail", [A, B, A, B, C, D]),
    ],
)
def test_truncation(make, mode, kept):
    ((ids, _),) = sequences(make(truncation=mode), ("a b c d a b c d",))
    assert ids == [CLS, *kept, SEP]


def loss(task, logits, labels):
    """Name, sum and weight of the loss, the last row being filling."""
    weights = jnp.ones(len(logits)).at[-1].set(0.0)
    batch = {"label": jnp.array(labels), "row_weights": weights}
    losses = task.definition.row_losses({"logits": jnp.array(logits)}, batch)
    ((name, weight),) = task.loss_weights(batch).items()
    total = jnp.sum(task.definition.row_weights(batch) * losses)
    return name, float(total), float(weight)


P = 1 / (1 + np.exp(-np.array([1.0, -2.0])))


@pytest.mark.parametrize(
    ("kind", "logits", "labels", "expected"),
    [
        pytest.param(
            "classification",
            [[1.0, 2.0, 0.5], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]],
            [2, 0, 0],
            -np.log(np.exp(0.5) / np.exp([1.0, 2.0, 0.5]).sum()) + np.log(3),
            marks=pytest.mark.slow,
        ),
        (
            "multilabel",
            [[1.0, -2.0], [0.0, 0.0], [9.0, 9.0]],
            [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]],
            -(np.log(P[0]) + np.log(1 - P[1])) / 2 + np.log(2),
        ),
        ("regression", [[1.0], [2.5], [7.0]], [2.0, 2.0, 0.0], 1.25),
    ],
    ids=["classes", "labels", "scores"],
)
def test_loss_of_each_kind(make, kind, logits, labels, expected):
    task = make(kind=kind, labels=("a", "b", "c")[: len(logits[0])])
    name, total, weight = loss(task, logits, labels)
    assert (name, weight) == (f"{kind}_loss", 2.0)
    assert total == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_logits_with_nan_have_no_score(make, kind):
    """The largest of NaN is the first class, which may well be the commonest."""
    labels, targets = KINDS[kind]
    examples = [text_row(i, "a", None, label) for i, label in enumerate(targets)]
    task = make(examples, kind=kind, labels=labels)
    task.fill_in({"evaluate.batch_size": 5})
    logits = np.zeros((5, len(labels)), np.float32)
    usual = task.results("dev", [{"logits": logits}]).scores
    assert usual and np.isfinite(list(usual.values())).all()
    logits[3] = np.nan
    found = task.results("dev", [{"logits": logits}]).scores
    assert found.keys() == usual.keys() and np.isnan(list(found.values())).all()


KINDS = {
    "classification": (("no", "yes"), [1, 0, 1, 1, 1]),
    "multilabel": ([*"abc"], [(1, 0, 1), (0, 0, 0), (1, 1, 1), (0, 1, 0), (0, 0, 1)]),
    "regression": (("score",), [0.5, 1.0, -2.0, 3.0, 0.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_classification_from_records_to_scores(make, tmp_path, kind):
    """Rows go through the model in another order, and come back in their own."""
    labels, targets = KINDS[kind]
    texts = ["a b c d e f", "a", "a b", "a b c", ""]
    pairs = zip(texts, targets, strict=True)
    examples = [text_row(i, t, None, label) for i, (t, label) in enumerate(pairs)]
    task = make(examples, kind=kind, labels=labels)
    task.fill_in({"evaluate.batch_size": 2})
    task.resolve()
    params = initial_params(task.init_params)
    outputs = jax.jit(lambda batch: task.outputs(params, batch))
    results, answers = evaluated(task, params, "dev")
    together = Rows(task.encode(examples, "dev"), task.padding)
    (logits,) = outputs(together.batch(np.arange(5), 8)).values()
    np.testing.assert_allclose(np.array(answers), logits, atol=1e-5)
    guesses = [task.definition.guess(answer) for answer in answers]
    numbers = results.scores
    assert task.main_score in numbers
    if kind != "regression":
        right = np.mean([g == t for g, t in zip(guesses, targets, strict=True)])
        assert numbers["accuracy"] == pytest.approx(right)
        gold, given = np.array(targets), np.array(guesses)
        each = metrics.f1_score(gold, given, average=None, zero_division=0)
        found = [numbers[f"f1:{name}"] for name in labels]
        np.testing.assert_allclose(found, each)
        macro = metrics.f1_score(gold, given, average="macro", zero_division=0)
        assert numbers["macro_f1"] == pytest.approx(macro)
    results.write(tmp_path)
    rows = read_rows(tmp_path / "dev.jsonl")
    for index, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        result = task.definition.format_answer(examples[index], answer)
        assert row["index"] == index
        assert result.items() <= row.items()  # as `predict` answers
    assert task.definition.scores([text_row(0, "a")], answers[:1]) == {}


def test_answers_for_people(make):
    def answer(task, *logits):
        return task.definition.format_answer(text_row(0, "a"), np.float32(logits))

    result = answer(make(), 0.0, np.log(3))
    assert result["label"] == "yes"
    assert result["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
    task = make(kind="multilabel", labels=("a", "b", "c"))
    result = answer(task, 0.0, -1000.0, 1000.0)
    assert result["labels"] == ["a", "c"]
    assert result["scores"] == {"a": 0.5, "b": 0.0, "c": 1.0}
    task = make(kind="regression", labels=("score",))
    assert answer(task, 2.5) == {"score": 2.5}


def labelled(*labels):
    return [text_row(i, "a", label=label) for i, label in enumerate(labels)]


def test_majority_baseline(make):
    numbers = make().definition.baseline_scores(labelled(1, 0, 1))
    expected = {"accuracy": 2 / 3, "f1": 0.8, "matthews": 0.0, "macro_f1": 0.4}
    expected |= {"average_precision": 2 / 3, "roc_auc": 0.5}
    assert numbers == pytest.approx(expected | {"f1:no": 0.0, "f1:yes": 0.8})
    task = make(kind="multilabel", labels=("a", "b"))
    numbers = task.definition.baseline_scores(labelled((1, 0), (1, 1), (1, 0)))
    expected = {"f1": 6 / 7, "accuracy": 2 / 3, "macro_f1": 0.5}
    assert numbers == pytest.approx(expected | {"f1:a": 1.0, "f1:b": 0.0})
    task = make(kind="regression", labels=("score",))
    numbers = task.definition.baseline_scores(labelled(1.0, 2.5, 0.0))
    assert numbers == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.parametrize(
    ("names", "positive"), [(("no", "yes"), "yes"), (("10", "9"), "10")]
)
def test_f1_is_of_the_second_label_in_sorted_order(make, names, positive):
    """Whatever the order of the outputs: in the model's answers and the baseline."""
    rng = np.random.default_rng(0)
    gold, guessed = (rng.choice(names, 50, p=[0.7, 0.3]).tolist() for _ in range(2))
    expected = metrics.f1_score(gold, guessed, pos_label=positive)
    majority = metrics.f1_score(gold, [names[0]] * 50, pos_label=positive)
    for order in (names, names[::-1]):
        task = make(labels=order)
        examples = labelled(*(order.index(name) for name in gold))
        answers = [np.eye(2, dtype=np.float32)[order.index(name)] for name in guessed]
        numbers = task.definition.scores(examples, answers)
        assert numbers["f1"] == pytest.approx(expected)
        assert numbers["accuracy"] == metrics.accuracy_score(gold, guessed)
        correlation = metrics.matthews_corrcoef(gold, guessed)
        assert numbers["matthews"] == pytest.approx(correlation)
        baseline = task.definition.baseline_scores(examples)["f1"]
        assert baseline == pytest.approx(majority)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model.type_vocab_size": 1}, "pairs of texts, which need 2; set it to"),
        ({"model.causal": True}, "texts_per_row=4: is for a BERT"),
    ],
)
def test_model_that_does_not_fit_its_rows_is_refused(make, fields, said):
    """JAX would take the first segment's embedding for the second text too."""
    task = make([text_row(0, "a", "b", 1)], texts_per_row=4 if "4" in said else 1)
    task.fill_in(fields)
    rows = task.rows("train")
    line = error_line(lambda: texts_task(task.config, rows).training_data())
    assert said in line
    row = error_line(task.parse_row, {"text": 1}, error=ValueError)
    assert '"text" is required' in row


@pytest.mark.slow
def test_texts_in_shared_rows_have_the_loss_and_gradients_of_texts_alone(make):
    rng = np.random.default_rng(0)
    examples = []
    for index in range(24):
        text = " ".join(rng.choice(list("abcdefghij"), rng.integers(1, 12)))
        second = "c d" if index % 3 else None
        examples.append(text_row(index, text, second, (index % 2, index % 3 // 2)))
    found = []
    for texts in (1, 4):
        task = make(examples, 16, kind="multilabel", texts_per_row=texts)
        task.resolve()
        task.fill_in({"train.batch_size": 16})
        if texts == 1:
            params = initial_params(task.init_params)
        rows = next(task.batches(0, slice(None), 0))
        assert count_positions(rows)[0] == texts
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


# Ten groups of two rows each.
LETTERS = "abcdefghij"
TAGGED = "".join(f"{x} O\n{x} B-x\n\n" for x in LETTERS)


def squad_file(path):
    answers = [{"text": "a", "answer_start": 0}]
    paragraphs = [
        {
            "context": f"a {letter}",
            "qas": [
                {"id": f"{letter}{i}", "question": "b", "answers": answers}
                for i in range(2)
            ],
        }
        for letter in LETTERS
    ]
    path.write_text(json.dumps({"data": [{"title": "c", "paragraphs": paragraphs}]}))


def jsonl(make_row):
    return lambda path: write_rows(
        path, [make_row(letter, i) for letter in LETTERS for i in range(2)]
    )


HELD_OUT = {
    "ner": (lambda path: path.write_text(2 * TAGGED), lambda row: row["words"][0]),
    "squad": (squad_file, lambda row: row["context"][-1]),
    "swag": (
        jsonl(lambda x, i: {"context": x, "endings": [*"abcd"], "label": i}),
        lambda row: row["context"],
    ),
    "embeddings": (
        jsonl(lambda x, i: {"text": x * (i + 1), "positive": x * (2 - i)}),
        lambda row: row["texts"][0][0],
    ),
}


@pytest.mark.parametrize("name", HELD_OUT)
def test_dev_fraction_holds_out_whole_groups(name, tmp_path):
    write, group_of = HELD_OUT[name]
    path = tmp_path / ("train.txt" if name == "ner" else "train.jsonl")
    path = path.with_suffix(".json") if name == "squad" else path
    write(path)
    config = shrunk(recipes.start_finetuning(name, "tiny", "bert"), tmp_path)
    config.task.update(train_file=str(path), dev_fraction=0.3)
    if name == "squad":
        config.task.update(max_query_length=4, doc_stride=4)
    task = resolved(config)
    assert task.splits == ("dev",)
    train, dev = ([*map(group_of, task.rows(split))] for split in ("train", "dev"))
    assert sorted(train + dev) == sorted(2 * LETTERS)
    assert len(dev) == 6 and not {*train} & {*dev}
    assert [row for row in task.rows("train") if row in task.rows("dev")] == []
    config.task.dev_fraction = 0.01
    line = error_line(lambda: resolved(config).splits)
    assert "config.task.dev_fraction=0.01: holds out none of the 20 training" in line
    assert "10 may be apart" in line
    # A run is evaluated on another file, and its training data stay what they were.
    config.task.update(dev_fraction=0.3, dev_file=str(path))
    task = resolved(config)
    assert [len(task.rows(split)) for split in ("train", "dev")] == [14, 20]


def test_rows_of_equal_texts_are_a_group(tmp_path):
    """In whatever file and line they stand, and however they are written."""

    class Texts(Text):
        def group_names(self, rows):
            return super(Text, self).group_names(rows)

    texts = [f"{'Aa'[i]} {letter}{' ' * i}" for letter in LETTERS for i in range(2)]
    found = []
    for rows in (texts, texts[::-1]):
        path = write_rows(
            tmp_path / "t.jsonl", [{"text": text, "label": "x"} for text in rows]
        )
        config = shrunk(recipes.start_finetuning("text", "tiny", "bert"), tmp_path)
        config.task.update(train_file=path, dev_fraction=0.3)
        task = Finetuning(Texts, config)
        held = {row["text"].lower().split()[1] for row in task.rows("dev")}
        assert len(task.rows("dev")) == 6 and len(held) == 3
        found.append(held)
    assert found[0] == found[1]


def test_documents_stay_whole_where_they_are_read(tmp_path):
    path = tmp_path / "train.txt"
    documents = [f"-DOCSTART- O\n\n{x} O\n\nb O\n\n" for x in 2 * LETTERS]
    config = shrunk(recipes.start_finetuning("ner", "tiny", "bert"), tmp_path)
    config.task.update(train_file=str(path), dev_fraction=0.3, document_context=True)
    found = []
    for order in (documents, documents[::-1]):
        path.write_text("".join(order))
        task = resolved(config)
        train, dev = (
            [row["words"][0] for row in task.rows(split)[::2]]
            for split in ("train", "dev")
        )
        found.append({*dev})
    assert len(dev) == 6 and len({*dev}) == 3 and not {*train} & {*dev}
    assert found[0] == found[1]


FORMS = {  # of a task and the text_b of its rows, what the served page asks for
    ("text", ""): ["text"],
    ("text", "b"): ["text", "text_b"],
    ("ner", ""): ["text"],
    ("squad", ""): ["question", "context"],
    ("swag", ""): ["context", "endings"],
    ("embeddings", ""): ["text", "text_b"],
}


@pytest.mark.parametrize(("name", "text_b"), FORMS)
def test_row_fields_are_those_that_a_row_needs(name, text_b, tmp_path):
    config = shrunk(recipes.start_finetuning(name, "tiny", "bert"), tmp_path)
    config.task.update({"max_query_length": 4} if name == "squad" else {})
    if name in ("text", "ner"):
        config.task.labels = ("O", "B-x")
    if text_b:
        config.task.text_b = text_b
    task = resolved(config)
    predictor = task.predictor()
    about = server.about_model(predictor, task, tmp_path)
    assert about["fields"] == FORMS[name, text_b] == [*about["example"]]
    assert about["labels"] == (["O", "B-x"] if name in ("text", "ner") else [])
    row = {field: "a" for field in about["fields"]}
    if "endings" in row:
        row["endings"] = [*"abcd"]
    predictor.parse_row(dict(row))
    for field in {*row} - ({"text_b"} if name == "embeddings" else set()):
        with pytest.raises(ValueError, match=field):
            predictor.parse_row({n: x for n, x in row.items() if n != field})
