"""Third-party weights are used as they are: a gap counts only where it is used."""

import numpy as np
import pytest

from tests.asking import FINETUNE, contents, make_model
from tests.micro import read_rows, write_rows
from tests.runs import here as bert
from tests.runs import refused

TEXTS = ["He went to the [MASK] .", "the [MASK] of the city was [MASK] in 1066"]


@pytest.fixture(scope="module")
def folders(shared_data, tmp_path_factory):
    """Gives a Hugging Face folder of an architecture."""
    known = {}

    def find(architecture):
        if architecture not in known:
            folder = tmp_path_factory.mktemp(architecture) / "model"
            known[architecture] = make_model(folder, shared_data, architecture)
        return known[architecture]

    return find


def predict(folder, rows, *args, status=0):
    source, target = write_rows(folder / "in.jsonl", rows), folder / "out.jsonl"
    files = (f"--input={source}", f"--output={target}", f"--workdir={folder / 'none'}")
    if status:
        return refused("--mode=predict", *files, *args)
    bert("--mode=predict", *files, *args)
    return read_rows(target)


@pytest.mark.slow
def test_masks_are_filled_in_without_a_next_sentence_head(
    torch, transformers, folders, tmp_path
):
    model = folders("BertForMaskedLM")
    rows = [{"text": text, "text_b": "so they say ."} for text in TEXTS]
    answers = predict(tmp_path, rows, f"--config.init_from={model}")
    assert all("is_next_probability" not in answer for answer in answers)
    theirs = transformers.BertForMaskedLM.from_pretrained(model).eval()
    tokenizer = transformers.BertTokenizerFast(str(model / "vocab.txt"))
    for row, answer in zip(rows, answers, strict=True):
        encoding = tokenizer(row["text"], row["text_b"], return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**encoding).logits[0]
        places = (encoding["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        shares = torch.softmax(logits[places[:, 0]], -1).numpy()
        assert len(answer["masks"]) == len(shares)
        for guesses, own in zip(answer["masks"], shares, strict=True):
            assert guesses[0]["id"] == np.argmax(own)
            for guess in guesses:
                expected = pytest.approx(own[guess["id"]], abs=1e-6)
                assert guess["probability"] == expected


@pytest.mark.slow
def test_tagger_needs_no_pooler_and_names_for_its_tags(folders, tmp_path):
    model = folders("BertForTokenClassification")
    spec = f"--config={FINETUNE / 'ner.py'}:recipe=tiny"
    words = {"words": ["The", "Normans", "won", "in", "1066", "."]}
    args = (spec, "--config.task.max_seq_length=64", f"--config.init_from={model}")
    err = predict(tmp_path, [words], *args, status=2)
    assert "config.task.labels: 'LABEL_0' has no prefix" in err
    (plain,) = predict(tmp_path, [words], *args, "--config.task.scheme=none")
    names = "--config.task.labels=('O', 'B-PER')"
    (named,) = predict(tmp_path, [words], *args, names)
    assert len(set(plain["tags"])) == 2
    meaning = {"LABEL_0": "O", "LABEL_1": "B-PER"}
    assert named["tags"] == [meaning[tag] for tag in plain["tags"]]


@pytest.mark.slow
def test_folder_names_what_is_missing(folders, tmp_path):
    spec = f"--config={FINETUNE / 'swag.py'}:recipe=tiny"
    given = (spec, "--config.task.max_seq_length=64")
    given = (*given, f"--config.init_from={folders('BertForMaskedLM')}")
    row = {"context": "He .", "endings": ["a", "b"]}
    err = predict(tmp_path, [row], *given, status=2)
    missing = "bert/pooler, multiple_choice"
    assert f"BertForMaskedLM without what this task needs: {missing}; " in err


def test_folder_is_exported_without_a_run(torch, transformers, folders, tmp_path):
    source, target = folders("BertForMaskedLM"), tmp_path / "out"
    before = contents(source)
    out, _ = bert("--mode=export", f"--config.init_from={source}",
                  f"--output={target}", f"--workdir={tmp_path / 'none'}")  # fmt: skip
    assert out == f"exported: {target}\n" and contents(source) == before
    assert not (tmp_path / "none").exists()
    read = transformers.BertForMaskedLM.from_pretrained
    theirs, ours = (read(x).eval() for x in (source, target))
    old = transformers.BertTokenizerFast(str(source / "vocab.txt"))
    new = transformers.AutoTokenizer.from_pretrained(target)
    given = ("He went to the City", "Of Rome")
    encodings = [cut(*given, return_tensors="pt") for cut in (old, new)]
    assert torch.equal(encodings[0]["input_ids"], encodings[1]["input_ids"])
    with torch.no_grad():
        some, others = (m(**e) for m, e in zip((theirs, ours), encodings, strict=True))
    for name in some:
        torch.testing.assert_close(some[name], others[name], rtol=0, atol=0)


def test_folder_without_weights(tmp_path):
    for mode in ("predict", "evaluate", "export"):
        workdir, output = f"--workdir={tmp_path}/none", f"--output={tmp_path / 'out'}"
        err = refused(f"--mode={mode}", workdir, output)
        assert f"{workdir} does not exist, and there is no --" in err
    assert not list(tmp_path.iterdir())
