"""Words and tags become features and come back, whatever their length."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.tasks.ner.task import Tagged, add_context, cut_words
from tests.micro import error_line
from tests.tasks.ner.ner_tasks import encoded, pieces, task_in
from tests.tasks.small_texts import write_predictions


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)


def guessed(*tags):
    return Tagged([*tags], [0.9] * len(tags))


def gold_outputs(task, features):
    """Logits that are highest at each tag, and padding."""
    eye = np.eye(len(task.labels) + 1)[:, :-1]
    padding = np.zeros((3, len(task.labels)))
    labels = (feature.columns["labels"] for feature in features)
    return [{"logits": np.concatenate([eye[own], padding])} for own in labels]


def test_labels_are_those_of_the_training_data(task):
    assert task().labels == ("O", "B-X", "B-Y", "I-X")
    assert task(train="a A\nb O\nc B", scheme="none").labels == ("O", "A", "B")


def test_label_is_at_a_words_first_token(task):
    made = task()
    first, second = encoded(made, "train")
    assert pieces(made, first) == ["[CLS]", "P", "##a", "b", "[SEP]"]
    assert list(first.columns["labels"]) == [-1, 1, -1, 3, -1]
    assert list(first.columns["segment_ids"]) == [0] * 5
    assert list(second.columns["labels"]) == [-1, 0, 2, -1]
    batch = made._rows("train").batch(np.array([1, 0, 2]), 6)
    assert batch["labels"].tolist() == [
        [-1, 0, 2, -1, -1, -1],
        [-1, 1, -1, 3, -1, -1],
        [-1] * 6,
    ]


def test_words_of_no_piece_and_of_many_keep_their_tags(task):
    long = "a" * 150 + "." * 1000
    made = task(dev=f"\x00\tB-X\n{long}\tI-X\n[SEP]\tO\nb\tB-Y\n", max_seq_length=20)
    features = encoded(made, "dev")
    assert pieces(made, features[0])[1] == "[UNK]"
    assert all(len(f.columns["input_ids"]) <= 20 for f in features)
    # As words of the text, not as the special tokens.
    assert sum(pieces(made, f).count("[SEP]") for f in features) == len(features)
    outputs = gold_outputs(made, features)
    answers = made.definition.decode_answers(made.examples("dev"), features, outputs)
    assert [x.tags for x in answers] == [["B-X", "I-X", "O", "B-Y"]]
    assert made.notices == {"dev: sentences longer than max_seq_length, split": 1}


def test_windows_of_a_long_sentence_overlap(task):
    made = task(dev="".join(f"{c}\tO\n" for c in "abcdefghij"), max_seq_length=8)
    features = encoded(made, "dev")
    windows = [(pieces(made, f)[1:-1], f.columns["labels"]) for f in features]
    found = ["".join(words) for words, _ in windows]
    assert found == ["abcdef", "cdefgh", "efghij", "efghij"]
    tagged = [
        "".join(w for w, label in zip(words, labels[1:-1], strict=True) if label == 0)
        for words, labels in windows
    ]
    assert tagged == ["abc", "def", "ghi", "j"]


DOCUMENTS = (
    "-DOCSTART- O\n\na O\nb O\n\nc O\nd O\n\ne O\n\nf O\n\n"
    "-DOCSTART- O\n\ng O\nh O\n\ni O\n"
)


def test_document_context(task):
    made = task(dev=DOCUMENTS, document_context=True, max_seq_length=7)
    found = [
        "".join(
            piece.upper() if label == 0 else piece
            for piece, label in zip(pieces(made, f), f.columns["labels"], strict=True)
        )
        for f in encoded(made, "dev")
    ]
    assert found == [
        f"[CLS]{words}[SEP]"
        for words in ("ABcde", "bCDef", "bcdEf", "bcdeF", "GHi", "ghI")
    ]
    alone = encoded(task(dev=DOCUMENTS), "dev")
    assert [len(f.columns["input_ids"]) for f in alone] == [4, 4, 3, 3, 4, 3]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_windows(data):
    """Every word is tagged once, and no window could hold more of its document."""
    room = data.draw(st.integers(3, 30))
    sizes = data.draw(st.lists(st.integers(1, room), min_size=1, max_size=60))
    begin = data.draw(st.integers(0, len(sizes) - 1))
    end = data.draw(st.integers(begin + 1, len(sizes)))
    around = data.draw(st.integers(0, begin)), data.draw(st.integers(end, len(sizes)))
    found = list(cut_words(sizes, begin, end, room))
    assert [i for part in found for i in range(*part)] == list(range(begin, end))
    if sum(sizes[begin:end]) <= room:
        assert found == [(begin, end)]
    for part in found:
        left, right = add_context(sizes, part, around, room)
        assert around[0] <= left <= part[0] < part[1] <= right <= around[1]
        rest = room - sum(sizes[left:right])
        assert rest >= 0
        assert left == around[0] or sizes[left - 1] > rest
        assert right == around[1] or sizes[right] > rest


@pytest.mark.parametrize(
    "fields", [{}, {"max_seq_length": 5}, {"document_context": True}]
)
def test_gold_logits_give_full_marks(task, fields):
    made = task(dev=DOCUMENTS.replace("c O\nd O", "c B-X\nd I-X"), **fields)
    features, examples = encoded(made, "dev"), made.examples("dev")
    outputs = gold_outputs(made, features)
    answers = made.definition.decode_answers(examples, features, outputs)
    scores = made.definition.scores(examples, answers)
    assert scores == dict.fromkeys(("precision", "recall", "f1", "accuracy"), 1.0)


def test_scores_and_the_file(task, tmp_path):
    made = task(dev="a\tB-X\nb\tI-X\n\nc\tB-Y\n")
    assert made.main_score == "f1"
    examples = made.examples("dev")
    answers = [guessed("B-X", "I-X"), guessed("O")]
    scores = made.definition.scores(examples, answers)
    third = pytest.approx(2 / 3)
    assert scores == {"precision": 1.0, "recall": 0.5, "f1": third, "accuracy": third}
    write_predictions(made, tmp_path / "predictions", "dev", examples, answers)
    text = (tmp_path / "predictions" / "dev.conll").read_text()
    assert text == "a\tB-X\tB-X\nb\tI-X\tI-X\n\nc\tB-Y\tO\n"


def test_baseline_is_the_majority_tag(task):
    made = task(dev="a\tB-X\n\nb\tO\nc\tO\nd\tO\n")
    baseline = made.definition.baseline_scores(made.examples("dev"))
    assert baseline == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 0.75}


def test_parts_of_speech(task):
    made = task(train="a NN\nb V\n", dev="a NN\nb NN\n", scheme="none")
    assert made.main_score == "accuracy"
    examples = made.examples("dev")
    assert made.definition.scores(examples, [guessed("NN", "V")]) == {"accuracy": 0.5}
    row = made.parse_row({"words": ["a"]})
    assert made.definition.format_answer(row, guessed("NN")) == {"tags": ["NN"]}


def test_test_file_without_tags(task, tmp_path):
    made = task(test="a\nb\n\nc\n")
    examples = made.examples("test")
    assert "labels" not in encoded(made, "test")[0].columns
    assert made.definition.scores(examples, [guessed("O", "O"), guessed("B-X")]) == {}
    write_predictions(
        made, tmp_path, "test", examples, [guessed("O", "O"), guessed("B-X")]
    )
    assert (tmp_path / "test.conll").read_text() == "a\tO\nb\tO\n\nc\tB-X\n"


def test_tag_that_training_never_saw_counts_as_wrong(task):
    made = task(dev="a\tB-NEW\nb\tI-NEW\nc\tB-X\n")
    (feature,) = encoded(made, "dev")
    assert list(feature.columns["labels"]) == [-1, -1, -1, 1, -1]
    notice = "dev: tags that are not in training, scored as wrong"
    assert made.notices == {notice: 2}
    scores = made.definition.scores(made.examples("dev"), [guessed("O", "O", "B-X")])
    assert scores["recall"] == 0.5
    assert scores["accuracy"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train": "a NN\n"}, ":1: the tag 'NN' has no prefix.*scheme=none"),
        ({"labels": ("O", "B-X", "B-Y")}, ":2: the tag 'I-X' is not in"),
    ],
)
def test_ner_says_what_is_wrong(task, given, said):
    line = error_line(lambda: task(**given).training_data())
    assert re.search(f"train.conll{said}", line)


@pytest.mark.slow
def test_loss_is_the_mean_over_tagged_words(task):
    made = task()
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, 3)).astype(np.float32)
    labels = np.array([[-1, 2, -1, 0], [1, 1, -1, -1]])
    batch = {"labels": jnp.array(labels)}
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    losses = [-np.log(shares[0, 1, 2]), -np.log(shares[0, 3, 0])]
    losses += [-np.log(shares[1, 0, 1]), -np.log(shares[1, 1, 1])]
    for weights, count in (([1.0, 1.0], 4), ([1.0, 0.0], 2)):
        batch["row_weights"] = jnp.array(weights)
        found = made.definition.row_losses({"logits": jnp.array(logits)}, batch)
        found = jnp.sum(found * made.definition.row_weights(batch))
        assert float(found) == pytest.approx(np.sum(losses[:count]), rel=1e-6)
        assert made.loss_weights(batch) == {"tagging_loss": count}


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
def test_labels_on_real_data_as_by_word_ids(task, shared_data, lowercase):
    """As the token classification examples of `transformers` align them."""
    kind = "uncased" if lowercase else "cased"
    vocab = shared_data(f"vocab/bert-base-{kind}-vocab.txt")
    text = shared_data("ner/emerging.test.annotated").read_text("utf-8")
    made = task(train=text, vocab=vocab, lowercase=lowercase, max_seq_length=512)
    tokenizer = tokenization.load(vocab, lowercase)
    examples = made.examples("train")
    words = [list(example["words"]) for example in examples]
    theirs = tokenizer.encode_batch(words, is_pretokenized=True)
    empty = 0
    for feature, encoding in zip(encoded(made, "train"), theirs, strict=True):
        seen: set[int | None] = {None}
        labels = []
        for word in encoding.word_ids:
            tags = examples[feature.example]["tags"]
            labels.append(-1 if word in seen else made.labels.index(tags[word]))
            seen.add(word)
        if len(seen) - 1 < len(words[feature.example]):
            empty += 1  # they lose the tag of a word that has no token
            continue
        assert list(feature.columns["labels"]) == labels
        assert list(feature.columns["input_ids"]) == encoding.ids
    # U+FE0F alone: it counts as an accent, which the uncased models strip.
    assert empty == (3 if lowercase else 0)
