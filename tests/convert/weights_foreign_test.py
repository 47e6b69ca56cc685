"""Model folders of other programs: their meaning apart from the numbers."""

import json
import re

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from bert_jax import main, tokenization
from bert_jax.convert import export, weights
from tests.micro import error_line, read_rows

CLASSIFIER = "BertForSequenceClassification-three_heads"
LABELS = {"0": "no", "1": "maybe", "2": "yes"}
ROWS = '{"text": "a b c"}\n{"text": "k"}\n'
pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def ask(tmp_path, capfd):
    """Answers ROWS with the weights of a folder."""

    def answers(folder, *flags, rows=ROWS, status=0):
        (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
        line = ["--mode=predict", f"--config.init_from={folder}", *flags]
        line += [f"--input={tmp_path}/rows.jsonl", f"--output={tmp_path}/out.jsonl"]
        assert main.main(line) == status
        if status:
            return capfd.readouterr().err.splitlines()[-1]
        return read_rows(tmp_path / "out.jsonl")

    return answers


TEXT = ("--config=configs/finetune/text.py", "--config.task.max_seq_length=8")


def one_output(tensors):
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = tensors[name][:1]


def test_choice_among_one_is_refused(make_folder, ask):
    folder = make_folder(CLASSIFIER, {"id2label": {"0": "score"}}, one_output)
    line = ask(folder, *TEXT, status=2)
    assert "has one output" in line and "--config.task.kind=regression" in line


def exported(folder, out, labels):
    """A folder that a run of these labels would have exported."""
    found = weights.read_weights(folder)
    config = {
        "task": {"name": "text", "kind": "classification", "labels": labels},
        **{"model": {}, "train": {}, "tokenizer": {}},
    }
    provenance = {"step": 3, "config": config, "task": {}, "scores": {}}
    tokenizer = weights.find_source(folder).tokenizer()
    export.export_folder(found, tokenizer, out, provenance)
    return out


def edited(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_labels_may_get_better_names(make_folder, tmp_path):
    folder = make_folder(CLASSIFIER, {"id2label": LABELS})
    out = exported(folder, tmp_path / "out", [*"012"])
    edited(out, id2label={"0": "bad", "1": "so", "2": "good"})
    assert weights.find_source(out).run_config()["task"]["labels"] == [
        "bad",
        "so",
        "good",
    ]
    edited(out, id2label={"0": "bad", "1": "good"})  # they do not fit
    assert weights.find_source(out).run_config()["task"]["labels"] == [*"012"]


def test_folder_that_transformers_has_saved_since_is_no_export(make_folder, tmp_path):
    folder = make_folder(CLASSIFIER, {"id2label": LABELS})
    out = exported(folder, tmp_path / "out", [*LABELS.values()])
    edited(out, transformers_version="5.0.0")
    assert weights.find_source(out).run_config() is None


def padded(tensors):
    name = "bert.embeddings.word_embeddings.weight"
    tensors[name] = np.pad(tensors[name], ((0, 6), (0, 0)))


@pytest.mark.slow
def test_spare_rows_to_a_multiple_are_taken(make_folder, ask):
    """As NVIDIA's 30,528 for 30,522 tokens."""
    names = {"id2label": LABELS}
    expected = ask(make_folder(CLASSIFIER, names), *TEXT)
    folder = make_folder(CLASSIFIER, {**names, "vocab_size": 56}, padded)
    lines = (folder / "vocab.txt").read_text().splitlines()[:50]
    (folder / "vocab.txt").write_text("\n".join(lines))
    assert "lacks at its end" in ask(folder, *TEXT, status=2)
    tokenization.load(folder / "vocab.txt").save(str(folder / "tokenizer.json"))
    assert ask(folder, *TEXT) == expected  # here each token has an explicit id


@pytest.fixture
def own_tokens(make_folder):
    """A folder whose tokenizer.json has marks of entities, as `transformers` adds."""
    folder = make_folder()
    tokenizer = tokenization.load(folder / "vocab.txt")
    tokenizer.add_special_tokens([AddedToken("[E1]", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_model_s_own_special_tokens_stay_whole(own_tokens):
    tokenizer = tokenization.load_folder_tokenizer(own_tokens)
    tokenizer.encode_special_tokens = True  # as tasks read texts
    tokens = tokenizer.encode("a [E1] b [MASK]").tokens
    assert tokens[:4] == ["[CLS]", "a", "[E1]", "b"]
    assert "[MASK]" not in tokens
    again = tokenization.load(own_tokens / "tokenizer.json")
    assert again.to_str() == tokenizer.to_str()


def test_marks_are_added_where_a_tokenizer_adds_none(own_tokens):
    path = own_tokens / "tokenizer.json"
    expected = tokenization.load(path).encode("a b", "c")
    form = json.loads(path.read_text())
    form["post_processor"] = None
    path.write_text(json.dumps(form))
    assert Tokenizer.from_file(str(path)).encode("a b", "c").tokens == ["a", "b", "c"]
    found = tokenization.load(path).encode("a b", "c")
    assert found.tokens == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"] == expected.tokens
    assert found.type_ids == expected.type_ids


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "tokenizer_config.json",
            {"tokenizer_class": "BertJapaneseTokenizer"},
            "alone does not say how texts are cut .tokenizer_class='BertJapaneseTok",
        ),
        ("added_tokens.json", {"[E1]": 50}, r"tokens outside of it: \['\[E1\]'\]"),
    ],
)
def test_vocab_txt_that_is_not_all(make_folder, file, content, message):
    folder = make_folder()
    (folder / file).write_text(json.dumps(content))
    assert re.search(message, error_line(tokenization.load_folder_tokenizer, folder))
    known = {"0": {"content": "[PAD]"}}
    fields = {"tokenizer_class": "BertTokenizerFast", "added_tokens_decoder": known}
    (folder / file).write_text(json.dumps(fields if "config" in file else {"[UNK]": 1}))
    tokenization.load_folder_tokenizer(folder)
