"""SQuAD's features against the rules of run_squad.py, written out anew here, and
against `transformers`, on some paragraphs of each article of the real files.

Intended differences, none of which occurs in SQuAD's own files: an empty context
has a window, an answer's white space at either end is not searched for, a question of
several answers is trained on the first, an answer within ten characters of its place is
found (234 of COVID-QA). `transformers` trains on the tokens that cover the answer's
characters, where run_squad.py takes the whole word if they are more than the answer.
"""

import functools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.tasks import create_task
from bert_jax.tasks.squad import windows as squad_windows
from bert_jax.tasks.squad.windows import Span, Window
from configs.finetune import squad
from tests.tasks.small_squad import every
from tests.tokenization.wordpiece_test import Rules

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"
# The paragraphs of each file: the first of a given number.
PARAGRAPHS = {"dev-v1.1": 16, "dev-v2.0.subset": 10}


def some_of(shared_data, folder, name):
    """About six hundred of a file's questions."""
    return every(PARAGRAPHS[name], shared_data(f"squad/{name}.json"), folder)


def task_for(path, vocabulary, **fields):
    config = squad.get_config(version="2.0" if "v2" in path.name else "1.1")
    config.task.null_answers = "v2" in path.name or "squad2" in path.name
    config.tokenizer.vocab_file = str(vocabulary)
    config.task.train_file = config.task.dev_file = str(path)
    config.task.update(fields)
    return create_task(config)


def words_of(context):
    """Words between white space, and for each character the number of its word."""
    words, place, inside = [], [], False
    for character in context:
        if character in (" ", "\t", "\r", "\n", "\u202f"):
            inside = False
        else:
            if not inside:
                words.append("")
            words[-1] += character
            inside = True
        place.append(len(words) - 1)
    return words, place


def most_context(windows, position):
    """Number of the window with the most context on its shorter side."""
    scores = []
    for number, (start, size) in enumerate(windows):
        left, right = position - start, start + size - 1 - position
        if min(left, right) >= 0:
            scores.append((-(min(left, right) + 0.01 * size), number))
    return min(scores)[1]


class Published:
    """The features of a file, as lists."""

    def __init__(self, vocabulary):
        pieces = vocabulary.read_bytes().decode("utf-8").split("\n")[:-1]
        rules = Rules(pieces, lowercase=True)
        self.tokenize = functools.cache(lambda text: rules.tokenize(text))
        self.context = functools.cache(self.context)
        self.numbers = {piece: number for number, piece in enumerate(pieces)}

    def context(self, text):
        words, place = words_of(text)
        tokens, first = [], []
        for word in words:
            first.append(len(tokens))
            tokens += self.tokenize(word)
        return tokens, first, place, len(words)

    def answer(self, context, answer):
        tokens, first, place, words = self.context(context)
        begin = answer["answer_start"]
        start = place[begin]
        stop = place[begin + len(answer["text"]) - 1]
        low = first[start]
        high = (first[stop + 1] if stop + 1 < words else len(tokens)) - 1
        expected = " ".join(self.tokenize(answer["text"]))
        for new_low in range(low, high + 1):
            for new_high in range(high, new_low - 1, -1):
                if " ".join(tokens[new_low : new_high + 1]) == expected:
                    return new_low, new_high
        return low, high

    def features(self, context, qa, null_answers):
        question = self.tokenize(qa["question"])[:64]
        tokens = self.context(context)[0]
        room = 384 - len(question) - 3
        windows, start = [], 0
        while start < len(tokens):
            size = min(len(tokens) - start, room)
            windows.append((start, size))
            if start + size == len(tokens):
                break
            start += min(size, 128)
        answer = None
        if qa["answers"] and not (null_answers and qa["is_impossible"]):
            answer = self.answer(context, qa["answers"][0])
        for number, (start, size) in enumerate(windows):
            text = ["[CLS]", *question, "[SEP]", *tokens[start : start + size], "[SEP]"]
            positions = (0, 0)
            if answer and answer[0] >= start and answer[1] < start + size:
                positions = tuple(a - start + len(question) + 2 for a in answer)
            yield (
                [self.numbers[piece] for piece in text],
                [0] * (len(question) + 2) + [1] * (size + 1),
                positions,
                [
                    len(windows) == 1 or most_context(windows, start + i) == number
                    for i in range(size)
                ],
            )


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAGRAPHS)
def test_features_as_published(shared_data, tmp_path, name):
    vocabulary, path = shared_data(VOCABULARY), some_of(shared_data, tmp_path, name)
    task = task_for(path, vocabulary)
    trained, features = task.encode_examples("train"), task.encode_examples("dev")
    published = Published(vocabulary)
    expected = (
        (paragraph["context"], feature)
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
        for feature in published.features(
            paragraph["context"], qa, task.config.task.null_answers
        )
    )
    count = 0
    for train, dev, (context, (ids, segments, positions, owned)) in zip(
        trained, features, expected, strict=True
    ):
        count += 1
        assert dev.columns["input_ids"].tolist() == ids
        assert dev.columns["segment_ids"].tolist() == segments
        assert dev.info.owned.tolist() == owned
        assert train.columns["input_ids"].tolist() == ids
        found = train.columns["start_positions"], train.columns["end_positions"]
        assert found == positions
        # A token's characters lie in one word of the context, in the order of tokens.
        begin = dev.info.offsets[dev.info.span.start, 0]
        end = dev.info.offsets[sum(dev.info.span) - 1, 1]
        assert begin < end <= len(context)
    assert count == {"dev-v1.1": 707, "dev-v2.0.subset": 639}[name]


@pytest.mark.slow
def test_features_of_transformers(transformers, shared_data, tmp_path):
    """Windows, segment ids and offsets of its tokenizer. Its stride is what windows
    share, not the step from one to the next."""
    vocabulary = shared_data(VOCABULARY)
    path = some_of(shared_data, tmp_path, "dev-v2.0.subset")
    task = task_for(path, vocabulary)
    (tmp_path / "vocab.txt").write_bytes(vocabulary.read_bytes())
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    examples, features = task.examples("dev"), iter(task.encode_examples("dev"))
    for example in examples:
        question = len(theirs(example["question"], add_special_tokens=False).input_ids)
        encoded = theirs(
            example["question"],
            example["context"],
            truncation="only_second",
            max_length=384,
            stride=384 - 3 - question - 128,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for ids, segments, offsets in zip(
            encoded.input_ids,
            encoded.token_type_ids,
            encoded.offset_mapping,
            strict=True,
        ):
            feature = next(features)
            assert feature.columns["input_ids"].tolist() == ids
            assert feature.columns["segment_ids"].tolist() == segments
            window = feature.info
            part = window.offsets[window.span.start : sum(window.span)]
            assert [tuple(pair) for pair in part.tolist()] == offsets[window.first : -1]
    assert next(features, None) is None


@given(st.integers(0, 80), st.integers(1, 30), st.integers(1, 40))
def test_windows_cover_every_token_and_one_owns_it(tokens, room, stride):
    found = squad_windows.window_spans(tokens, room, stride)
    owned = squad_windows.has_max_context(found, tokens)
    assert all(0 <= length <= room for _, length in found)
    for position in range(tokens):
        owners = [
            number
            for number, (start, length) in enumerate(found)
            if start <= position < start + length and owned[number][position - start]
        ]
        assert owners == [most_context(found, position)]


def test_answer_is_in_a_window_whole_or_not_at_all():
    offsets = np.zeros((20, 2), np.int32)
    window = Window(Span(4, 3), 7, np.ones(3, bool), offsets)
    within = {(4, 4): (7, 7), (4, 6): (7, 9), (6, 6): (9, 9)}
    for answer in [*within, (3, 4), (6, 7), (7, 7), None]:
        found = squad_windows.answer_positions(window, answer)
        assert found == within.get(answer, (0, 0))


def labelled(tokenizer, context, place):
    """The answer's tokens, and their characters in the context."""
    encoding = tokenizer.encode(context, add_special_tokens=False)
    tokens = squad_windows.answer_tokens(
        context,
        place,
        np.array(encoding.ids, np.int32),
        np.array(encoding.offsets, np.int32),
        tokenizer.encode(context[slice(*place)], add_special_tokens=False).ids,
    )
    if tokens is None:
        return None, None
    first, last = tokens
    place = encoding.offsets[first][0], encoding.offsets[last][1]
    return encoding.tokens[first : last + 1], place


# The intended one of each answer: the last.
SECOND = [
    (
        "\u738b\u660e\u4f4f\u5728\u5317\u4eac\u3002\u674e\u7ea2\u4e5f\u4f4f\u5728\u5317\u4eac\u3002",
        "\u5317\u4eac",
    ),
    (
        "\u304d\u3087\u3046\u306f\u3044\u3044\u3066\u3093\u304d\u3067\u3059\u3002\u3042\u3057\u305f\u306f\u3042\u3081\u3067\u3059\u3002",
        "\u3042\u3081",
    ),
    (
        "\u0e2a\u0e21\u0e0a\u0e32\u0e22\u0e2d\u0e22\u0e39\u0e48\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
        "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
    ),
    ("\uc81c16\ub300 \ub300\ud1b5\ub839\uc774 16\ub300\ub2e4", "16\ub300"),
    ("The tie ended 2-1,2-1 after extra time.", "2-1"),
    ("\u5728\u4e1c\u4eac1949\u5e74\u5230\u5317\u4eac1949\u5e74", "1949"),
]


@pytest.mark.parametrize(("context", "answer"), SECOND)
def test_marked_answer_is_labelled(shared_data, context, answer):
    """And not an equal one before it, nor the whole text where there are no spaces."""
    name = "vocab/bert-base-multilingual-cased-vocab.txt"
    tokenizer = tokenization.load(shared_data(name), lowercase=False)
    start = context.rindex(answer)
    place = start, start + len(answer)
    assert labelled(tokenizer, context, place)[1] == place


def test_token_beyond_the_answer_widens_it_to_a_word():
    pieces = ["ab", "##ab", "##cd", "xy", "-"]
    pieces += ["\u3042\u3044", "##\u3046\u3048", "##\u304a\u304b"]
    pieces = [*tokenization.SPECIAL_TOKENS, *pieces]
    tokenizer = tokenization.build_tokenizer(pieces, True)
    # In the script with spaces the whole word, in the other one the token.
    assert labelled(tokenizer, "xy abcd-xy xy", (5, 6))[1] == (3, 10)
    japanese = "xy \u3042\u3044\u3046\u3048\u304a\u304b xy"
    assert labelled(tokenizer, japanese, (5, 6))[1] == (5, 7)
    # The answer's own tokens may be others than those at its characters.
    assert labelled(tokenizer, "abab", (2, 4)) == (["##ab"], (2, 4))
    assert labelled(tokenizer, "qqz-qqz", (4, 6)) == (["[UNK]"], (4, 7))


def test_parts_of_words_and_answers_without_tokens(shared_data):
    tokenizer = tokenization.load(shared_data(VOCABULARY))

    def found(context, answer):
        start = context.index(answer)
        return labelled(tokenizer, context, (start, start + len(answer)))[0]

    assert found("John Smith (1895-1943).", "1895") == ["1895"]
    assert found("the Japanese market", "Japan") == ["japanese"]
    assert found("it was 20\u201318 then", "8") == ["20", "\u2013", "18"]
    assert found("a \u200b b", "\u200b") is None
    assert found("caf\u00e9 \u4e2d\u56fd", "\u56fd") == ["\u56fd"]
