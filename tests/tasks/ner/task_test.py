"""Words and tags become features and come back, whatever their length."""

import itertools
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import bert_jax
from bert_jax import tokenization
from bert_jax.models.architectures import CRF_SCALE
from bert_jax.tasks.ner.task import Tagged, add_context, cut_words
from bert_jax.workdir import folder
from tests.micro import answerer, error_line, initial_params
from tests.runs import run
from tests.tasks.ner.ner_tasks import PIECES, TRAIN, encoded, pieces, task_in
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


# BERT's tags joined by a CRF: the loss by hand, guesses, refused fields.


LONG = "".join(f"{c}\tO\n" for c in "abcdefghij")


@pytest.fixture
def crf_task(tmp_path):
    return task_in(tmp_path)(dev=LONG, crf=True, max_seq_length=8)


@pytest.fixture
def params(crf_task):
    """Parameters whose transitions matter."""
    params = initial_params(crf_task.init_params)
    rng = np.random.default_rng(0)
    values = {k: rng.normal(size=v.shape) for k, v in params["crf"].items()}
    assert not any(np.asarray(v).any() for v in params["crf"].values())  # at first
    loud = {k: np.float32(v / CRF_SCALE) for k, v in values.items()}
    return {**params, "crf": loud}


def test_loss_is_minus_the_log_probability_of_the_tags(crf_task, params):
    assert crf_task.labels == ("O", "B-X", "B-Y", "I-X")
    assert crf_task.config.task.tag_scheme == "BIO"
    features = encoded(crf_task, "train")
    batch = crf_task.make_rows(features).batch(np.arange(3), 8)
    found = jax.jit(crf_task.logits)(params, batch)
    losses = jax.jit(crf_task.definition.row_losses)(found, batch)
    names = ("between", "first", "last")
    between, first, last = (CRF_SCALE * params["crf"][name] for name in names)
    for row, feature in enumerate(features):
        gold = feature.columns["labels"][feature.info]
        own = np.asarray(found["logits"])[row, feature.info]

        def score(path, own=own):
            chain = sum(between[a, b] for a, b in itertools.pairwise(path))
            return own[range(len(path)), list(path)].sum() + (
                first[path[0]] + last[path[-1]] + chain
            )

        every = [score(p) for p in itertools.product(range(4), repeat=len(gold))]
        expected = special.logsumexp(every) - score(gold)
        assert float(losses[row]) == pytest.approx(expected, rel=1e-4)
    assert float(losses[2]) == 0.0  # no row
    assert float(jax.jit(crf_task.loss_weights)(batch)["tagging_loss"]) == 2.0


def test_guesses_keep_to_the_scheme_in_every_window(crf_task, params):
    params["crf"]["first"][3] += 1000 / CRF_SCALE  # an I that begins nothing
    answers = answerer(crf_task.predictor(), params).answer(
        [{"text": "a b c d e f g h i j"}, {"text": ""}]
    )
    assert len(answers[0]["tags"]) == 10 and answers[0]["tags"][0] != "I-X"
    assert answers[1] == {"words": [], "tags": [], "entities": []}
    for before, after in itertools.pairwise(answers[0]["tags"]):
        assert after != "I-X" or before in ("B-X", "I-X")


@pytest.mark.slow
def test_run_with_a_crf_is_loaded_with_it_and_exported_without(
    plain, tmp_path, monkeypatch
):
    (tmp_path / "train.conll").write_text(4 * f"{TRAIN}\n")
    fields = {"init_from": plain, "task.train_file": tmp_path / "train.conll"}
    fields |= {"task.crf": True, "task.max_seq_length": 16, "train.num_steps": 2}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    run("configs/finetune/ner.py:recipe=tiny", tmp_path / "run", *flags)
    run("", tmp_path / "run", "--mode=export", f"--output={tmp_path / 'exported'}")
    ours, theirs = (bert_jax.load(tmp_path / name) for name in ("run", "exported"))
    assert ours.heads == ("crf", "token_classification")
    assert theirs.heads == ("token_classification",)
    for model in (ours, theirs):
        (answer,) = model.predict([{"words": ["the", "fox"]}])
        assert len(answer["tags"]) == 2


def test_chain_is_the_sentence_and_not_the_document_around_it(tmp_path):
    crf_task = task_in(tmp_path)(crf=True, document_context=True, max_seq_length=12)
    for feature in encoded(crf_task, "train"):
        columns = feature.columns
        assert columns["words"].nonzero()[0].tolist() == feature.info.tolist()
        assert len(feature.info) < len(columns["input_ids"]) - 2
    cut = task_in(tmp_path)(dev=LONG, crf=True, document_context=True, max_seq_length=8)
    assert [x.columns["words"].sum() for x in encoded(cut, "dev")] == [6] * 4


def test_scheme_that_the_tags_break_is_refused(tmp_path):
    """Sentences of BIO's tags, which end no entity with E."""
    crf_task = task_in(tmp_path)(dev=LONG, crf=True, tag_scheme="BIOES")
    said = "tag_scheme=BIOES: 2 of 2 training sentences .* theirs is BIO; leave"
    assert re.search(said, error_line(crf_task.training_data))


# Tags of words: in the order of the file, of `predict`, of outputs without names.


SURE = pytest.approx(math.e / (math.e + 3), rel=1e-5)  # one logit of four is 1


@pytest.fixture
def trained_task(tmp_path):
    return task_in(tmp_path)


def by_piece(made):
    """Replaces the device: the tag depends on the token that it is read from."""
    tags = {"P": "B-X", "U": "I-X", "d": "B-Y"}
    rows = [made.labels.index(tags.get(piece, "O")) for piece in PIECES]
    table = jnp.eye(len(made.labels))[jnp.array(rows)]
    return lambda batch: {"logits": table[batch["input_ids"]]}


def test_evaluation_answers_in_the_order_of_the_file(trained_task, tmp_path):
    """Windows and padding and rows of other lengths make no difference."""
    words = ["a Pa Ub c a a a a a a Pa Ub", "d", "Pa", "b Ub", "c " * 30 + "d", "Ub d"]
    dev = "\n\n".join("\n".join(f"{w}\tO" for w in line.split()) for line in words)
    made = trained_task(dev=dev, max_seq_length=10)
    made.fill_in({"evaluate.batch_size": 2})
    device = by_piece(made)
    batches = made.evaluation_batches("dev", 0, slice(None))
    results = made.results("dev", jax.device_get([device(x) for x in batches]))
    tags = {"Pa": "B-X", "Ub": "I-X", "d": "B-Y"}
    results.write(tmp_path)
    written = (tmp_path / "dev.conll").read_text().split("\n")
    for line, read in zip(written, [*dev.split("\n"), ""], strict=True):
        word = read.partition("\t")[0]
        assert line == (f"{read}\t{tags.get(word, 'O')}" if read else "")


def ask(made, rows):
    device = by_piece(made)
    made.outputs = lambda params, batch: device(batch)
    return answerer(made.predictor(), rows=2).answer(rows)


def test_predict_words(trained_task):
    rows = [{"words": ["a", "Pa.", "Ub", "\x00"]}, {"words": ["d"]}, {"words": ["a"]}]
    first = {"label": "X", "start": 1, "end": 3, "words": ["Pa.", "Ub"], "score": SURE}
    second = {"label": "Y", "start": 0, "end": 1, "words": ["d"], "score": SURE}
    assert ask(trained_task(), rows) == [
        {"tags": ["O", "B-X", "I-X", "O"], "entities": [first]},
        {"tags": ["B-Y"], "entities": [second]},
        {"tags": ["O"], "entities": []},
    ]


def test_predict_text_with_its_offsets(trained_task):
    text = "  a\u2028Pa  Ub.d \U0001f600\x00d"
    (answer,) = ask(trained_task(), [{"text": text}])
    assert answer["words"] == ["a", "Pa", "Ub.d", "\U0001f600", "\x00d"]
    assert answer["tags"] == ["O", "B-X", "I-X", "O", "B-Y"]
    assert answer["entities"] == [
        {"label": "X", "start": 4, "end": 12, "text": "Pa  Ub.d", "score": SURE},
        {"label": "Y", "start": 14, "end": 16, "text": "\x00d", "score": SURE},
    ]
    for entity in answer["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
    assert json.loads(json.dumps(answer)) == answer


def test_word_ends_after_its_accents(trained_task):
    text = "a Rene\u0301 d\u0308"
    (answer,) = ask(trained_task(), [{"text": text}])
    assert answer["words"] == ["a", "Rene\u0301", "d\u0308"]
    for entity in answer["entities"]:
        assert entity["text"] in answer["words"]
        assert text[entity["start"] : entity["end"]] == entity["text"]


DOTTED = "P.U. a-b cc .|dd , U.P. .|ab ."


def test_text_is_split_as_the_training_data(trained_task, tmp_path):
    """And so it is where the run is opened later."""
    lines = "\n\n".join(DOTTED.replace(" ", "\tB-X\n").split("|"))
    train = f"{lines}\tO\n".replace("\n\n", "\tO\n\n")
    labels = ("O", "B-X", "B-Y", "I-X")
    made = trained_task(train=train, labels=labels)
    record = made.training_data().record
    (tmp_path / "data.json").write_text(json.dumps(record))
    opened = trained_task(train=train, labels=labels)
    opened = opened.with_fitted(folder.read_facts(tmp_path, 7))
    text = "P.U. a-c, U.U. cd."
    (answer,) = ask(opened, [{"text": text}])
    assert answer["words"] == ["P.U.", "a-c", ",", "U.U.", "cd", "."]
    (tagged,) = ask(opened, [{"words": answer["words"]}])
    assert answer["tags"] == tagged["tags"]
    for entity in answer["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("spaces", ["Pa.Ub", "d."]),
        ("punctuation", ["Pa", ".", "Ub", "d", "."]),
        ("characters", [*"Pa.Ubd."]),
        ("learned", ["Pa.Ub", "d", "."]),
    ],
)
def test_rule_that_is_named(trained_task, rule, words):
    (answer,) = ask(trained_task(words=rule), [{"text": "Pa.Ub d."}])
    assert answer["words"] == words


def test_text_without_words_has_no_tags(trained_task):
    found = ask(trained_task(), [{"text": ""}, {"words": ["Pa"]}, {"text": " \x00\n"}])
    assert [answer["tags"] for answer in found] == [[], ["B-X"], []]
    assert found[0] == {"words": [], "tags": [], "entities": []}
    assert ask(trained_task(), [{"words": []}]) == [{"tags": [], "entities": []}]


def test_rows_are_no_context_of_each_other(trained_task):
    made = trained_task(document_context=True)
    rows = [made.parse_row({"words": ["a"]}), made.parse_row({"text": "b c"})]
    features = made.encode(rows, "predict")
    assert [pieces(made, f)[1:-1] for f in features] == [["a"], ["b", "c"]]


@pytest.mark.parametrize("row", [{"words": ["a"], "text": "a"}, {"words": ["a", ""]}])
def test_rows_that_are_wrong(trained_task, row):
    with pytest.raises(ValueError, match=r'"words"|"text"'):
        trained_task().parse_row(row)
