"""Extracted vectors against `transformers`' hidden states, from the same folder."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import pretrained
from bert_jax.extract import Extractor
from bert_jax.family import FAMILIES
from tests.close import assert_close

ROWS = [
    {"text": "cab bed"},
    {"text": "abc", "text_b": "f"},
    {"text": "a b c d e f g h i j k l m n o p q r s t"},  # is cut
    {"text": ""},
    {"text": "abc z"},
]
UNITS = ("pieces", "words", "words_mean", "cls", "mean")
COMBINATIONS = ("none", "concatenated", "sum", "mean")


@pytest.fixture
def theirs(torch, transformers):
    """Gives ids, words and hidden states [layers + 1, length, hidden] of each row."""

    def states_of(folder, positions):
        model = transformers.BertModel.from_pretrained(folder).eval()
        tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
        found = []
        for row in ROWS:
            texts = [row["text"]] + ([row["text_b"]] if "text_b" in row else [])
            encoding = tokenizer(*texts, return_tensors="pt", truncation=True,
                                 max_length=positions)  # fmt: skip
            with torch.no_grad():
                states = model(**encoding, output_hidden_states=True).hidden_states
            segments = encoding["token_type_ids"][0].numpy()
            words = [
                None if word is None else (int(segment), word)
                for word, segment in zip(encoding.word_ids(), segments, strict=True)
            ]
            ids = encoding["input_ids"][0].numpy()
            found.append((ids, words, torch.stack(states)[:, 0].numpy()))
        return found

    return states_of


def expected(words, states, layers, combine, unit):
    """The vectors [count, ...] of one row."""
    chosen = [states[layer if layer >= 0 else len(states) + layer] for layer in layers]
    match combine:
        case "none":
            each = np.stack(chosen, axis=1)
        case "concatenated":
            each = np.concatenate(chosen, axis=1)
        case "sum":
            each = np.sum(chosen, axis=0)
        case "mean":
            each = np.mean(chosen, axis=0)
    places = {}
    for place, word in enumerate(words):
        if word is not None:
            places.setdefault(word, []).append(place)
    match unit:
        case "pieces":
            return each
        case "words":
            vectors = [each[own[0]] for own in places.values()]
        case "words_mean":
            vectors = [each[own].mean(axis=0) for own in places.values()]
        case "cls":
            vectors = [each[0]]
        case "mean":
            own = [place for some in places.values() for place in some]
            vectors = [each[own].mean(axis=0) if own else np.zeros_like(each[0])]
    return np.array(vectors).reshape(-1, *each.shape[1:])


@pytest.mark.slow
def test_extract_gives_every_unit_and_combination(make_folder, theirs):
    """Of hidden states that are computed once for all of them."""
    folder = make_folder()
    bert = pretrained.load(folder)
    layers, known = (-1, 2, 0), []
    run = jax.jit(
        FAMILIES[bert.config.architecture].with_heads.trunk(bert.config).apply
    )
    rows = theirs(folder, bert.config.max_position_embeddings)
    pairs = {
        *itertools.product(UNITS, ["none"]),
        *itertools.product(["words_mean"], COMBINATIONS),
    }
    for unit, combine in sorted(pairs):
        predict = {"layers": layers, "combine": combine, "vectors": unit}
        config = ConfigDict({"predict": predict})
        extractor = Extractor(config, bert.config, bert.tokenizer)
        examples = [extractor.parse_row(row) for row in ROWS]
        features = extractor.encode(examples, "predict")
        table = extractor.make_rows(features)
        batch = table.batch(np.arange(len(ROWS)), int(table.lengths.max()))
        batch = jax.tree.map(jnp.asarray, batch)
        inputs = [batch[x] for x in ("input_ids", "input_mask", "segment_ids")]
        if not known:
            known.append(run({"params": bert.params["bert"]}, *inputs))
        extractor._model = SimpleNamespace(apply=lambda *_: known[0])
        found = jax.device_get(jax.jit(extractor.outputs)(bert.params, batch))
        outputs = [
            {name: x[row] for name, x in found.items()} for row in range(len(ROWS))
        ]
        answers = extractor.decode(examples, features, outputs)
        for (ids, words, states), answer in zip(rows, answers, strict=True):
            own = expected(words, states, layers, combine, unit)
            assert answer["vectors"].shape == own.shape, (unit, combine)
            assert len(answer["names"]) == len(own)
            assert_close(answer["vectors"], own, name=f"{unit} {combine}")
            if unit == "pieces":
                assert answer["ids"] == ids.tolist()


def test_words_already_split_are_theirs(make_folder, transformers):
    folder = make_folder()
    bert = pretrained.load(folder)
    predict = {"layers": (-1,), "combine": "none", "vectors": "words"}
    config = ConfigDict({"predict": predict})
    extractor = Extractor(config, bert.config, bert.tokenizer)
    words = ["ab", "b-c", "z"]
    found = extractor.parse_row({"words": words})
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    encoding = tokenizer(words, is_split_into_words=True)
    assert found.columns["input_ids"].tolist() == encoding["input_ids"]
    firsts = [encoding.word_ids().index(word) for word in range(3)]
    owners = found.columns["owners"].tolist()
    assert [owners.index(word) for word in range(3)] == firsts
    assert found.info == words
