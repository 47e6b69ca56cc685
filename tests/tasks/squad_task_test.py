"""SQuAD's task: n best answers by Google's rules, gold spans, loss, prediction."""

import json
import math
import re
from collections import Counter

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from bert_jax.data.rows import Rows
from bert_jax.data.squad_windows import Span, Window
from bert_jax.errors import UserError
from bert_jax.scores import squad as scores
from bert_jax.tasks import squad_answers
from bert_jax.tasks.squad import Squad
from configs.finetune import squad

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "?"]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    config = squad.get_config("tiny", "2.0")
    config.tokenizer.vocab_file = str(tmp_path / "vocab.txt")
    config.model.hidden_size = 16
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 32
    config.model.max_position_embeddings = 32
    config.task.max_seq_length = 12
    config.task.max_query_length = 4
    config.task.doc_stride = 3
    config.evaluate.batch_size = 4
    return config


@pytest.fixture
def write(tmp_path):
    """Writes (context, question, answers or None) as a SQuAD file, ids from 0."""

    def write(*questions, name="file.json"):
        paragraphs = [
            {"context": context, "qas": [{"id": n, "question": question}]}
            for n, (context, question, _) in enumerate(questions)
        ]
        for paragraph, (_, _, answers) in zip(paragraphs, questions, strict=True):
            if answers is not None:
                paragraph["qas"][0]["answers"] = [
                    {"text": text, "answer_start": start} for text, start in answers
                ]
        content = {"data": [{"paragraphs": paragraphs}]}
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    return write


def published(windows, logits, size, longest, null_answers, texts):
    """write_predictions of run_squad.py, without the text: (text, start, end logit)."""
    found, null = [], (1_000_000.0, 0.0, 0.0)
    for number, (window, (starts, ends)) in enumerate(
        zip(windows, logits, strict=True)
    ):
        best = [
            [i for i, _ in sorted(enumerate(side), key=lambda x: x[1], reverse=True)]
            for side in (starts, ends)
        ]
        if starts[0] + ends[0] < null[0]:
            null = (starts[0] + ends[0], starts[0], ends[0])
        document = range(window.first, window.first + window.span.length)
        for start in best[0][:size]:
            for end in best[1][:size]:
                if start not in document or end not in document:
                    continue
                if not window.owned[start - window.first] or end < start:
                    continue
                if end - start + 1 > longest:
                    continue
                found.append((number, start, end, starts[start], ends[end]))
    if null_answers:
        found.append((None, 0, 0, *null[1:]))
    found.sort(key=lambda entry: entry[3] + entry[4], reverse=True)
    kept = []
    for number, start, end, *pair in found:
        text = "" if number is None else texts(number, start, end)
        if len(kept) == size:
            break
        if text not in [entry[0] for entry in kept]:
            kept.append((text, *pair))
    if null_answers and "" not in [entry[0] for entry in kept]:
        kept.append(("", *null[1:]))
    return kept or [("", 0.0, 0.0)], null[0]


LOGITS = st.lists(
    st.one_of(st.integers(-2, 2), st.floats(-9, 9, width=32)), min_size=8, max_size=8
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(LOGITS, LOGITS), min_size=2, max_size=2),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(1, 9),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["a b c d e f", "a a b a a b"]),
)
def test_n_best_as_published(given, own, size, longest, null_answers, context):
    offsets = np.array([(i, i + 1) for i in range(0, 11, 2)], np.int32)
    first = np.array([True, True, *own[:2]])
    windows = [
        Window(Span(0, 4), 3, first, offsets),
        Window(Span(2, 4), 3, np.array([*~first[2:], True, True]), offsets),
    ]
    logits = [tuple(np.array(side, np.float32) for side in pair) for pair in given]
    prediction = squad_answers.predict(
        context,
        windows,
        logits,
        n_best_size=size,
        max_answer_length=longest,
        null_answers=null_answers,
    )

    def text(number, start, end):
        shift = windows[number].span.start - 3
        return context[offsets[start + shift, 0] : offsets[end + shift, 1]]

    floats = [tuple(side.tolist() for side in pair) for pair in logits]
    expected, null = published(windows, floats, size, longest, null_answers, text)
    guesses = prediction.guesses
    assert [(g.text, g.start_logit, g.end_logit) for g in guesses] == expected
    assert prediction.null_score == null
    total = special.softmax([start + end for _, start, end in expected])
    np.testing.assert_allclose([g.probability for g in guesses], total, rtol=1e-12)
    for guess in guesses:
        if guess.start is not None:
            assert context[guess.start : guess.end] == guess.text
    if null_answers:
        best = next((entry for entry in expected if entry[0]), expected[0])
        odds = null - best[1] - best[2]
        assert prediction.null_odds == odds
        assert prediction.chosen(odds).text == best[0]
        assert prediction.chosen(math.nextafter(odds, -math.inf)).text == ""


def gold_logits(features):
    """10 where the training features have the answer, and padding, as in a batch."""
    for feature in features:
        start, end = np.zeros((2, len(feature.columns["input_ids"]) + 5), np.float32)
        start[feature.columns["start_positions"]] = 10
        end[feature.columns["end_positions"]] = 10
        start[-5:] = end[-5:] = 20
        yield {"start_logits": start, "end_logits": end}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version", "inside", "same", "within_a_word", "long"),
    [
        ("dev-v1.1", "1.1", 10_570, 10_525, 36, 9),
        ("dev-v2.0.subset", "2.0", 2_910, 2_902, 2, 6),
    ],
)
def test_gold_spans_as_logits(
    shared_data, name, version, inside, same, within_a_word, long
):
    """Exact match and F1 of 100 where the answer is in a window and is whole words.

    What is not: answers that begin or end within a word (Japan in Japanese, 27,814 in
    the euro sign and 27,814), and those of more than 30 tokens.
    """
    config = squad.get_config(version=version)
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    path = str(shared_data(f"squad/{name}.json"))
    config.task.train_file = config.task.dev_file = path
    task = Squad(config)
    features, examples = task.features("train"), task.examples("dev")
    predictions = task.answers(examples, features, list(gold_logits(features)))

    trained = [f for f in features if f.columns["start_positions"]]
    lengths = {
        f.example: f.columns["end_positions"] - f.columns["start_positions"] + 1
        for f in trained
    }
    reasons = Counter()
    kept = []
    for number, (example, answer) in enumerate(zip(examples, predictions, strict=True)):
        if not example.answers:
            kept.append(number)
            continue
        assert number in lengths  # the answer is whole in some window
        gold = example.answers[0].text
        if lengths[number] > config.task.max_answer_length:
            reasons["long"] += 1
        elif answer.best.text == gold:
            reasons["same"] += 1
            kept.append(number)
        else:
            reasons["within a word"] += 1
            start = example.answers[0].start
            around = example.context[max(0, start - 1) : start + len(gold) + 1]
            assert gold in answer.best.text
            assert any(
                len(word) > len(gold.split()[i])
                for i, word in ((0, around.split()[0]), (-1, around.split()[-1]))
            )
    assert len(lengths) == inside
    assert reasons == {"same": same, "within a word": within_a_word, "long": long}

    task.learn("dev", predictions)
    numbers = task.scores("dev", examples, predictions)
    if version == "2.0":
        assert numbers["NoAns_exact"] == numbers["NoAns_f1"] == 100
        assert numbers["HasAns_exact"] > 99.7
        assert task.facts["null_threshold"] == numbers["null_threshold"]
    else:
        assert numbers["exact_match"] > 99.6
    some = task.scores(
        "dev", [examples[i] for i in kept], [predictions[i] for i in kept]
    )
    assert some["exact_match"] == some["f1"] == 100


def test_loss_by_hand_whatever_the_padding(config, write):
    config.task.train_file = write(
        ("a b c d", "e?", [("b c", 2)]), ("a b c d e f g h a b c", "e?", [("h", 14)])
    )
    task = Squad(config)
    features = task.features("train")
    assert [f.example for f in features] == [0, 1, 1, 1]
    rng = np.random.default_rng(0)
    rows = Rows(features, task.padding)
    total = 0.0
    logits = rng.normal(size=(2, 5, 20)).astype(np.float32)
    for row, feature in enumerate(features):
        for side, name in ((0, "start"), (1, "end")):
            real = logits[side, row, : len(feature.columns["input_ids"])]
            position = feature.columns[f"{name}_positions"]
            total -= np.log(special.softmax(real.astype(np.float64))[position]) / 2
    for length in (12, 20):
        batch = rows.batch(np.arange(5), length)  # the last row fills it up
        batch = jax.tree.map(jnp.asarray, batch)
        losses = task.losses(
            {
                "start_logits": jnp.asarray(logits[0, :, :length]),
                "end_logits": jnp.asarray(logits[1, :, :length]),
            },
            batch,
        )
        loss = jnp.sum(task.weights(batch) * losses)
        assert float(loss) == pytest.approx(total, rel=1e-6)
        assert task.loss_weights(batch) == {"span_loss": 4}


def test_answers_in_windows(config, write):
    config.task.train_file = write(
        ("a b c d e f g h", "e?", [("c d", 4), ("a", 0)]),
        ("a b c", "e f g h a b", []),
        ("a b c", "e?", [("h", 0)]),
        ("a  b", "", [(" b", 1)]),
        ("", "a", []),
    )
    task = Squad(config)
    features = task.features("train")
    found = [
        (f.example, f.columns["start_positions"], f.columns["end_positions"])
        for f in features
    ]
    # Room for seven tokens after [CLS] e ? [SEP]: a to g, d to h.
    assert found == [(0, 6, 7), (0, 0, 0), (1, 0, 0), (3, 3, 3), (4, 0, 0)]
    assert features[-1].columns["input_ids"].tolist() == [2, 5, 3, 3]
    assert task.notices == {
        "train: empty questions": 1,
        "train: questions cut to max_query_length": 1,
        "train: questions of several answers, the first one used": 1,
        "train: answers some characters off answer_start, found": 1,
        "train: answers that are not at answer_start, left out": 1,
    }


def test_without_null_answers(config, write):
    config.task.null_answers = False
    config.task.train_file = write(("c b", "a", []), ("c b", "a", [("c", 0)]))
    config.task.dev_file = config.task.train_file
    task = Squad(config)
    assert [f.example for f in task.features("train")] == [1]
    examples = task.examples("dev")
    outputs = [
        {"start_logits": logits, "end_logits": logits}
        for logits in np.float32([[0, 0, 0, 1, 2, 0], [0, 0, 0, 2, 1, 0]])
    ]
    answers = task.answers(examples, task.features("dev"), outputs)
    assert [answer.guesses[0].text for answer in answers] == ["b", "c"]
    assert task.scores("dev", examples, answers) == {"exact_match": 100.0, "f1": 100.0}
    assert task.baseline("dev", examples) == {}
    assert task.notices == {
        "train: questions without an answer (task.null_answers is off), left out": 1,
        "dev: questions without an answer, not scored": 1,
    }
    config.task.train_file = write(("a b", "c", []))
    with pytest.raises(UserError, match=r"file\.json: no question has an answer.*null"):
        Squad(config).features("train")


def test_unlabelled_questions_have_no_scores(config, write):
    config.task.dev_file = write(("a b", "c", None))
    task = Squad(config)
    examples = task.examples("dev")
    output = {name: np.zeros(6, np.float32) for name in ("start_logits", "end_logits")}
    answers = task.answers(examples, task.features("dev"), [output])
    assert task.scores("dev", examples, answers) == {}
    assert task.facts == {}


def test_the_text_is_cut_out_of_the_context(shared_data):
    """Accents, control characters, wide spaces and Chinese stay as they are."""
    config = squad.get_config()
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    task = Squad(config)
    context = (
        "Un CAFE\u0301\u0302  \u00c9lan\u00a0a\u0000b\u200b \u4e2d\u6587 \U0001f600."
    )
    example = task.parse({"context": context, "question": "?"})
    (feature,) = task.encode([example], "predict")
    tokens = len(feature.info.offsets)
    found = []
    for position in range(3, 3 + tokens):
        logits = np.zeros(len(feature.columns["input_ids"]), np.float32)
        logits[position] = 9
        output = {"start_logits": logits, "end_logits": logits}
        (answer,) = task.answers([example], [feature], [output])
        result = task.result(example, answer)
        assert context[result["start"] : result["end"]] == result["answer"]
        found.append(result["answer"])
    assert (
        "".join(found) == "UnCAFE\u0301\u0302\u00c9lana\u0000b\u4e2d\u6587\U0001f600."
    )
    assert found[1] == "CAFE\u0301\u0302"


@pytest.mark.parametrize("kept", ["0", None, [0.0], float("nan")])
def test_a_threshold_that_is_no_number(config, kept):
    task = Squad(config)
    task.facts["null_threshold"] = kept
    with pytest.raises(UserError, match=r"null_threshold=.* is not a number"):
        _ = task._threshold


def test_files_and_threshold(config, write, tmp_path):
    config.task.dev_file = write(
        ("b a", "c", [("b", 0)]), ("b a", "c", []), ("a \u00e9", "c", [("\u00e9", 2)])
    )
    task = Squad(config)
    examples = task.examples("dev")
    outputs = [
        {"start_logits": np.float32(start), "end_logits": np.float32(end)}
        for start, end in (
            ([1, 0, 0, 3, 1, 0], [1, 0, 0, 3, 1, 0]),
            ([4, 0, 0, 3, 1, 0], [2, 0, 0, 2, 1, 0]),
            ([2, 0, 0, 0, 2, 0], [2, 0, 0, 0, 2, 0]),
        )
    ]
    answers = task.answers(examples, task.features("dev"), outputs)
    assert task._threshold == 0
    numbers = task.scores("dev", examples, answers)
    assert numbers == {
        "exact_match": 100.0,
        "f1": 100.0,
        "HasAns_exact": 100.0,
        "HasAns_f1": 100.0,
        "NoAns_exact": 100.0,
        "NoAns_f1": 100.0,
        "best_exact": 100.0,
        "best_f1": 100.0,
        "null_threshold": 0.0,
    }
    assert task.baseline("dev", examples) == {
        "exact_match": pytest.approx(100 / 3),
        "f1": pytest.approx(100 / 3),
        "HasAns_exact": 0.0,
        "HasAns_f1": 0.0,
        "NoAns_exact": 100.0,
        "NoAns_f1": 100.0,
    }
    task.facts["null_threshold"] = -1.0  # as a work directory's
    task.write(tmp_path / "p", "dev", examples, answers)
    read = {p.name: json.loads(p.read_text()) for p in (tmp_path / "p").iterdir()}
    assert read["predictions.json"] == {"0": "b", "1": "", "2": ""}
    assert read["null_odds.json"] == {"0": -4.0, "1": 1.0, "2": 0.0}
    nbest = read["nbest_predictions.json"]
    assert list(nbest) == ["0", "1", "2"]
    assert [list(entry) for entry in nbest["0"]] == [
        ["text", "probability", "start_logit", "end_logit"]
    ] * len(nbest["0"])
    assert [entry["text"] for entry in nbest["1"]] == ["", "b", "b a", "a"]
    assert sum(entry["probability"] for entry in nbest["1"]) == pytest.approx(1)
    assert read.keys() == {
        "predictions.json",
        "nbest_predictions.json",
        "null_odds.json",
    }
    result = task.result(examples[2], answers[2])
    assert (result["answer"], result["start"], result["end"]) == ("", None, None)
    assert result["null_score"] == 4.0


@pytest.mark.slow
def test_the_model_answers_long_contexts(config):
    """Through the predictor: rows in batches, windows together again."""
    task = Squad(config)
    params = nn.meta.unbox(task.init_params(jax.random.key(0)))
    predictor = task.predictor()
    step = jax.jit(predictor.step)

    def ask(batch):  # of one shape, to be compiled once
        rows, length = batch["input_ids"].shape
        padded = {
            name: np.pad(x, [(0, 4 - rows), (0, 12 - length)][: x.ndim])
            for name, x in batch.items()
        }
        return jax.device_get(step(params, padded))

    rows = [
        {"question": "a?", "context": "a b c d e f g h " * 5},
        {"question": "", "context": ""},
        {"question": "b", "context": "a"},
    ]
    examples = [predictor.parse(row) for row in rows]
    together = predictor.answer(examples, ask, 4)
    alone = [predictor.answer([example], ask, 1)[0] for example in examples]
    for row, ours, theirs in zip(rows, together, alone, strict=True):
        assert ours.keys() == {"answer", "start", "end", "score", "null_score"}
        assert ours["answer"] == theirs["answer"]
        assert ours["score"] == pytest.approx(theirs["score"], rel=1e-4)
        if ours["start"] is not None:
            assert row["context"][ours["start"] : ours["end"]] == ours["answer"]
    assert together[1]["answer"] == ""


@pytest.mark.slow
def test_a_megabyte_of_context(config):
    task = Squad(config)
    config.task.max_seq_length, config.task.doc_stride = 32, 16
    example = task.parse({"question": "a", "context": "a b c \0 d" * 120_000})
    features = task.encode([example], "predict")
    assert len(features) > 20_000
    owned = [window.info.owned.sum() for window in features]
    assert sum(owned) == len(features[0].info.offsets) == 480_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a"}, 'has no "context"'),
        ({"question": "a", "context": 3}, '"context" is 3, not text'),
        ({"question": ["a"], "context": "b"}, '"question" is ["a"], not text'),
        ({"question": None, "context": "b"}, '"question" is null, not text'),
        ({"question": "\udc00", "context": "b"}, "half of a surrogate pair"),
    ],
)
def test_bad_rows(config, row, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Squad(config).parse(row)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("doc_stride", 0),
        ("n_best_size", 0),
        ("max_answer_length", 0),
        ("max_query_length", 9),
        ("max_query_length", -1),
        ("max_seq_length", 33),
    ],
)
def test_bad_values(config, field, value):
    config.task[field] = value
    with pytest.raises(UserError, match=f"config.task.{field}={value}: "):
        Squad(config)


def test_the_paper_s_values():
    one, two = squad.get_config("large"), squad.get_config("large", "2.0")
    assert not one.task.null_answers
    assert two.task.null_answers
    for config, epochs, batch in ((one, 3, 32), (two, 2, 48)):
        assert config.train.num_epochs == epochs
        assert config.train.batch_size == batch
        assert config.optimizer.learning_rate == 5e-5
        assert config.task.max_seq_length == 384
    with pytest.raises(ValueError, match=r"version=3: choose one of 1\.1, 2\.0"):
        squad.get_config(version="3")


def test_scores_are_those_of_the_written_files(config, write, tmp_path):
    """The scripts, given predictions.json, print what the run says."""
    config.task.dev_file = write(
        *[("a b c", "d", [("b", 2)] if n % 3 else []) for n in range(30)]
    )
    task = Squad(config)
    examples = task.examples("dev")
    rng = np.random.default_rng(0)
    outputs = [
        {name: rng.normal(size=8).astype(np.float32) * 3 for name in names}
        for names in [("start_logits", "end_logits")] * 30
    ]
    answers = task.answers(examples, task.features("dev"), outputs)
    task.learn("dev", answers)
    numbers = task.scores("dev", examples, answers)
    task.write(tmp_path, "dev", examples, answers)
    predictions = json.loads((tmp_path / "predictions.json").read_text())
    golds = [(e.id, [gold.text for gold in e.answers]) for e in examples]
    assert numbers.items() >= scores.version2(predictions, golds).items()
    assert numbers["f1"] == pytest.approx(numbers["best_f1"])
    odds = json.loads((tmp_path / "null_odds.json").read_text())
    threshold = numbers["null_threshold"]
    assert {name for name in odds if odds[name] > threshold} == {
        name for name in predictions if not predictions[name]
    }
