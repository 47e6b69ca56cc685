"""Words added to a vocabulary (`tokenizer.add`): rows, answers, export, refusals."""

import dataclasses

import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

import bert_jax
from bert_jax.config import configuration
from bert_jax.convert import merge, weights
from bert_jax.errors import UserError
from tests.micro import write_rows
from tests.runs import run

WORDS = ("<drug>", "foxdog")
EMBEDDINGS = ("bert", "embeddings", "word_embeddings", "embedding")


def rows_of(params, path):
    for name in path:
        params = params[name]
    return np.asarray(params)


@pytest.mark.parametrize(("how", "spare"), [("mean", 0), ("random", 0), ("mean", 3)])
def test_add_rows_adds_one_row_a_word_to_each_table(plain, how, spare):
    source = weights.find_source(plain)
    saved, model = source.tokenizer(), source.read()
    count = saved.get_vocab_size()
    tables = (EMBEDDINGS, ("masked_lm", "bias"))
    flat = flatten_dict(model.params)
    flat |= {path: np.append(flat[path], flat[path][:spare], 0) for path in tables}
    model = dataclasses.replace(
        model,
        params=unflatten_dict(flat),
        config=dataclasses.replace(model.config, vocab_size=count + spare),
    )
    model = dataclasses.replace(model, others={"generator": model})
    config = configuration.with_defaults()
    config.tokenizer.added_rows = how
    whole = merge.add_rows(model, saved, WORDS, config)
    for grown in (whole.params, whole.others["generator"].params):
        for path in tables:
            before, after = rows_of(model.params, path), rows_of(grown, path)
            assert len(after) == count + max(spare, 2)
            np.testing.assert_array_equal(after[:count], before[:count])
            np.testing.assert_array_equal(after[count + 2 :], before[count + 2 :])
            for new, word in zip(after[count : count + 2], WORDS, strict=True):
                ids = saved.encode(word, add_special_tokens=False).ids
                if how == "mean":
                    np.testing.assert_allclose(new, before[ids].mean(axis=0), rtol=1e-6)
                else:
                    spread = np.std(new)
                    assert spread == pytest.approx(0.02, rel=0.5) or path[-1] == "bias"
        path = ("bert", "pooler", "kernel")
        assert rows_of(grown, path) is rows_of(model.params, path)


@pytest.mark.slow
def test_run_with_new_words_answers_and_exports(plain, tmp_path):
    table, workdir = tmp_path / "train.jsonl", tmp_path / "run"
    rows = [{"text": f"the <drug> fox {n}", "label": n % 2} for n in range(8)]
    write_rows(table, rows)
    fields = {
        "init_from": plain,
        "tokenizer.add": WORDS,
        "task.train_file": table,
        "task.max_seq_length": 8,
        "train.num_steps": 2,
        "model.hidden_dropout_prob": 0.0,
        "model.attention_probs_dropout_prob": 0.0,
        "train.batch_size": 8,
    }
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    run("configs/finetune/text.py:recipe=tiny", workdir, *flags)
    folder = tmp_path / "exported"
    run("", workdir, "--mode=export", f"--output={folder}")
    ours, theirs = bert_jax.load(workdir), bert_jax.load(folder)
    tokens = ours.encode(["the <drug> foxdog"])["tokens"][0]
    assert tokens == ["[CLS]", "the", *WORDS, "[SEP]"]
    assert ours.predict(["the <drug>"]) == theirs.predict(["the <drug>"])


@pytest.mark.parametrize(
    ("words", "message"),
    [(("the",), "'the' is a token already"), (("a\nb",), "without white space")],
)
def test_words_that_cannot_be_added_are_refused(plain, words, message):
    tokenizer = weights.find_source(plain).tokenizer()
    with pytest.raises(UserError, match=message):
        bert_jax.tokenization.add_words(tokenizer, words)


def test_new_word_is_no_part_of_other_words(plain):
    tokenizer = weights.find_source(plain).tokenizer()
    before = tokenizer.encode("the quick dogs")
    bert_jax.tokenization.add_words(tokenizer, ("uic", "og"))
    assert tokenizer.encode("the quick dogs").ids == before.ids
    assert "uic" in tokenizer.encode("the uic dogs").tokens
