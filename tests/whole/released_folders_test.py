"""The released vocabularies as people have them: in a folder next to weights."""

import dataclasses
import functools
import gzip
import itertools
import json
import re
import shutil
from collections import Counter
from functools import partial

import jax
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import bert_jax
from bert_jax import main, tokenization
from bert_jax.convert import export, layout, merge, weights
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.heads import init_model
from bert_jax.tasks.glue import data as glue
from bert_jax.training import setup
from configs import base
from configs.finetune import text as text_config
from tests.micro import bert_config, error_line, initial_params, write_rows

# Which are cased: google-research/bert, validate_case_matches_checkpoint.
CASED = {"uncased": False, "cased": True}


@pytest.fixture(scope="module")
def once_made(shared_data, tmp_path_factory):
    """Gives a folder of a released vocabulary and small weights, to be copied."""

    @functools.cache
    def find(name):
        vocabulary = shared_data(f"vocab/bert-base-{name}-vocab.txt")
        folder = tmp_path_factory.mktemp("released") / name
        write_weights(folder, len(vocabulary.read_bytes().split(b"\n")) - 1)
        shutil.copyfile(vocabulary, folder / "vocab.txt")
        return folder

    return find


@pytest.fixture
def released(once_made, tmp_path):
    """Makes a folder of a released vocabulary and small weights. `settings` go to
    tokenizer_config.json."""

    def make(name, settings=None):
        folder = tmp_path / name
        shutil.copytree(once_made(name), folder)
        if settings is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return make


def write_weights(folder, pieces):
    """A pre-training model of one layer, as `transformers` keeps it."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    sizes |= {"intermediate_size": 8, "max_position_embeddings": 64}
    config = bert_config(vocab_size=pieces, **sizes)
    model = BertWithHeads(config, heads=("masked_lm", "next_sentence"))
    params = initial_params(partial(init_model, model))
    found = layout.Weights(config, jax.device_get(params), "BertForPreTraining")
    export.export_folder(found, None, folder, {})


def begun_with(folder, tmp_path, config=None):
    """The tokenizer of a fine-tuning run that begins with a folder's weights."""
    config = config or text_config.get_config("tiny")
    config.init_from, config.model.vocab_size = str(folder), 0
    return setup.build_task(config, tmp_path / "run", from_data=False).tokenizer


def ids(tokenizer, lines):
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(lines)]


@pytest.fixture(scope="module")
def real_lines(shared_data):
    """Two thousand, English and Korean."""
    english = shared_data("corpus/english/04-encyclopedia-1.jsonl.gz")
    with gzip.open(english, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in itertools.islice(file, 700)]
    found = [line for text in texts for line in text.split("\n") if line][:5000:5]
    korean = shared_data("korean/nsmc_ratings_valid.txt").read_text("utf-8")
    found += [line.split("\t")[1] for line in korean.split("\n")[1:5001:5]]
    assert len(found) == 2000
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASED)
def test_vocabulary_tells_its_case(released, tmp_path, name):
    folder = released(name)
    cased = tokenization.normalizer_settings(tokenization.load_folder_tokenizer(folder))
    assert (cased["lowercase"], cased["strip_accents"]) == (not CASED[name],) * 2
    google = tmp_path / "google"  # has no config.json, and words of 200 characters
    google.mkdir()
    shutil.copyfile(folder / "vocab.txt", google / "vocab.txt")
    found = tokenization.load_folder_tokenizer(google)
    assert tokenization.normalizer_settings(found) == cased
    assert found.model.max_input_chars_per_word == 200


@pytest.mark.slow
def test_spare_rows_are_known_to_follow_a_released_vocabulary(released):
    """As NVIDIA's 30,528 for 30,522 tokens. A vocab.txt may lack a line elsewhere."""
    folder = released("cased")
    pieces = tokenization.load_folder_tokenizer(folder).get_vocab_size()
    model = weights.read_weights(folder).config
    padded = dataclasses.replace(model, vocab_size=-(-(pieces + 1) // 64) * 64)
    assert weights.find_source(folder).tokenizer(padded).get_vocab_size() == pieces
    lines = (folder / "vocab.txt").read_text("utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join(lines[:200] + lines[201:]), "utf-8")
    for config in (padded, model):
        line = error_line(weights.find_source(folder).tokenizer, config)
        assert re.search(r"its vocabulary has \d+ pieces, but", line)


@pytest.mark.slow
def test_load_fine_tuning_pre_training_and_export_agree(released, real_lines, tmp_path):
    folder = released("chinese")
    expected = ids(bert_jax.load(folder).tokenizer, real_lines)
    assert ids(begun_with(folder, tmp_path), real_lines) == expected
    pretraining = begun_with(folder, tmp_path, base.get_config())
    assert ids(pretraining, real_lines) == expected
    out = tmp_path / "out"
    command = ["--mode=export", f"--config.init_from={folder}", f"--output={out}"]
    assert main.main(command) == 0
    assert ids(bert_jax.load(out).tokenizer, real_lines) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), [("uncased", "mrpc"), ("chinese", "cola")])
def test_ids_on_glue_as_by_transformers(
    transformers, released, shared_data, tmp_path, name, task
):
    folder = released(name)
    title = glue.TASKS[task].title
    rows = glue.read_split(task, str(shared_data(f"glue/{title}")), "dev", Counter())
    texts = [row[name] for row in rows for name in ("text", "text_b") if name in row]
    texts = texts[:4000]
    ours = begun_with(folder, tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    found = ids(ours, texts)
    assert found == theirs(texts)["input_ids"]
    # Whatever is unknown holds a character that the vocabulary does not have.
    unknown = tokenization.special_ids(ours).unk
    pieces = ours.get_vocab()
    for text, encoding in zip(texts, ours.encode_batch(texts), strict=True):
        for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if index == unknown:
                letters = ours.normalizer.normalize_str(text[start:end])
                assert any(x not in pieces or f"##{x}" not in pieces for x in letters)


@pytest.mark.slow
def test_tokenizer_of_ones_own_keeps_its_normaliser(real_lines, tmp_path):
    """Korean syllables fall to jamo where accents are stripped."""
    letters = sorted({x for line in real_lines for x in line if x != " "})
    pieces = [*tokenization.SPECIAL_TOKENS, *letters, *(f"##{x}" for x in letters)]
    numbers = dict(zip(pieces, itertools.count(), strict=False))
    own = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    own.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    folder = tmp_path / "korean"
    write_weights(folder, len(pieces))
    own.save(str(folder / "tokenizer.json"))
    # It adds no marks to a text. A BERT's does.
    expected = [[2, *pieces, 3] for pieces in ids(own, real_lines)]
    assert ids(bert_jax.load(folder).tokenizer, real_lines) == expected
    assert ids(begun_with(folder, tmp_path), real_lines) == expected


@pytest.mark.slow
def test_another_normaliser_is_refused(released, shared_data, tmp_path, capsys):
    folder = released("cased")
    config = text_config.get_config("tiny")
    config.tokenizer.vocab_file = str(shared_data("vocab/bert-base-cased-vocab.txt"))
    theirs = tokenization.load_folder_tokenizer(folder)
    ours = tokenization.load_config_tokenizer(config)  # lowercase is the default
    line = error_line(merge.check_tokenizer, ours, theirs, folder)
    assert "the tokenizer is not that of" in line
    config.tokenizer.lowercase = False
    merge.check_tokenizer(tokenization.load_config_tokenizer(config), theirs, folder)


CONFIG = """
extends = "finetune/text:recipe=tiny"

def get_config(config):
    config.model.hidden_size = config.model.intermediate_size = 8
    config.model.num_hidden_layers = config.model.num_attention_heads = 1
    config.model.max_position_embeddings = 64
    config.task.max_seq_length = 32
    config.train.num_steps = 1
    return config
"""


@pytest.mark.slow
def test_work_directory_hands_its_tokenizer_on(released, real_lines, tmp_path):
    folder = released("uncased", {"do_lower_case": True, "strip_accents": False})
    expected = ids(bert_jax.load(folder).tokenizer, real_lines)
    (tmp_path / "own.py").write_text(CONFIG)
    numbered = enumerate(real_lines[:64])
    rows = [{"text": line, "label": str(i % 2)} for i, line in numbered]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    command = [f"--config.task.{split}_file={path}" for split in ("train", "dev")]
    command += [f"--config={tmp_path / 'own.py'}", f"--config.init_from={folder}"]
    done = tmp_path / "done"
    assert main.main([*command, f"--workdir={done}"]) == 0
    assert ids(bert_jax.load(done).tokenizer, real_lines) == expected
    assert ids(begun_with(done, tmp_path), real_lines) == expected
    plain = tokenization.load(folder / "vocab.txt")
    assert ids(plain, real_lines) != expected  # the setting matters to these lines
