"""SQuAD's answers: n best by Google's rules, gold spans, their text, long contexts."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from bert_jax.tasks import create_task
from bert_jax.tasks.squad import answers as squad_answers
from bert_jax.tasks.squad.windows import Span, Window
from configs.finetune import squad
from tests.micro import answerer, initial_params
from tests.tasks.small_squad import every, small_config

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"


@pytest.fixture
def config(tmp_path):
    return small_config(tmp_path)


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
    limits = {"n_best_size": size, "max_answer_length": longest}
    limits["null_answers"] = null_answers
    prediction = squad_answers.best_answers(context, windows, logits, **limits)

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
        assert prediction.apply_threshold(odds).text == best[0]
        assert prediction.apply_threshold(math.nextafter(odds, -math.inf)).text == ""


def gold_logits(features):
    """10 where the training features have the answer, and padding, as in a batch."""
    for feature in features:
        start, end = np.zeros((2, len(feature.columns["input_ids"]) + 5), np.float32)
        start[feature.columns["start_positions"]] = 10
        end[feature.columns["end_positions"]] = 10
        start[-5:] = end[-5:] = 20
        yield {"start_logits": start, "end_logits": end}


@pytest.mark.slow
def test_gold_spans_as_logits(shared_data, tmp_path):
    """Exact match and F1 of 100 where the answer is in a window and is whole words.

    What is not: answers that begin or end within a token (Japan in Japanese), and those
    of more than 30 tokens.
    """
    config = squad.get_config(version="2.0")
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    path = str(every(6, shared_data("squad/dev-v2.0.subset.json"), tmp_path))
    config.task.train_file = config.task.dev_file = path
    task = create_task(config)
    features, examples = task.encode_examples("train"), task.examples("dev")
    logits = [*gold_logits(features)]
    predictions = task.definition.decode_answers(examples, features, logits)
    lengths = {
        f.example: f.columns["end_positions"] - f.columns["start_positions"] + 1
        for f in features
        if f.columns["start_positions"]
    }
    reasons = Counter()
    kept = []
    for number, (example, answer) in enumerate(zip(examples, predictions, strict=True)):
        if not example["answers"]:
            kept.append(number)
            continue
        assert number in lengths  # the answer is whole in some window
        gold = example["answers"][0]["text"]
        if lengths[number] > config.task.max_answer_length:
            reasons["long"] += 1
        elif answer.best.text == gold:
            reasons["same"] += 1
            kept.append(number)
        else:
            reasons["within a word"] += 1
            start = example["answers"][0]["answer_start"]
            around = example["context"][max(0, start - 1) : start + len(gold) + 1]
            assert gold in answer.best.text
            assert any(
                len(word) > len(gold.split()[i])
                for i, word in ((0, around.split()[0]), (-1, around.split()[-1]))
            )
    assert len(lengths) == 478
    assert reasons == Counter({"same": 476, "within a word": 1, "long": 1})

    task = task.with_fitted(task.definition.fit(examples, predictions))
    numbers = task.definition.scores(examples, predictions)
    assert numbers["NoAns_exact"] == numbers["NoAns_f1"] == 100
    assert numbers["HasAns_exact"] > 99.7
    assert task.fitted["null_threshold"] == numbers["null_threshold"]
    parts = ([given[i] for i in kept] for given in (examples, predictions))
    some = task.definition.scores(*parts)
    assert some["exact_match"] == some["f1"] == 100


def test_text_is_cut_out_of_the_context(shared_data):
    """Accents, control characters, wide spaces and Chinese stay as they are."""
    config = squad.get_config()
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    task = create_task(config)
    context = (
        "Un CAFE\u0301\u0302  \u00c9lan\u00a0a\u0000b\u200b \u4e2d\u6587 \U0001f600."
    )
    example = task.parse_row({"context": context, "question": "?"})
    (feature,) = task.encode([example], "predict")
    tokens = len(feature.info.offsets)
    found = []
    for position in range(3, 3 + tokens):
        logits = np.zeros(len(feature.columns["input_ids"]), np.float32)
        logits[position] = 9
        output = {"start_logits": logits, "end_logits": logits}
        (answer,) = task.definition.decode_answers([example], [feature], [output])
        result = task.definition.format_answer(example, answer)
        assert context[result["start"] : result["end"]] == result["answer"]
        found.append(result["answer"])
    text = "UnCAFE\u0301\u0302\u00c9lana\u0000b\u4e2d\u6587\U0001f600."
    assert "".join(found) == text
    assert found[1] == "CAFE\u0301\u0302"


@pytest.mark.slow
def test_model_answers_long_contexts(config):
    """Through the predictor: rows in batches, windows together again."""
    task = create_task(config)
    params = initial_params(task.init_params)
    rows = [
        {"question": "a?", "context": "a b c d e f g h " * 5},
        {"question": "", "context": ""},
        {"question": "b", "context": "a"},
    ]
    asked = answerer(task.predictor(), params)
    together = asked.answer(rows)
    alone = [asked.answer([row])[0] for row in rows]
    for row, ours, theirs in zip(rows, together, alone, strict=True):
        assert ours.keys() == {"answer", "start", "end", "score", "null_score"}
        assert ours["answer"] == theirs["answer"]
        assert ours["score"] == pytest.approx(theirs["score"], rel=1e-4)
        if ours["start"] is not None:
            assert row["context"][ours["start"] : ours["end"]] == ours["answer"]
    assert together[1]["answer"] == ""
