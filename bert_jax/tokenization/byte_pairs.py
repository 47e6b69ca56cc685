"""GPT's byte-pair vocabulary: vocab.json, merges.txt, and three special tokens.

The rules are those of `transformers`' OpenAIGPTTokenizer: BERT's normalizer and
splitting of words, then the merges. The published code (text_utils.py) splits with
spaCy and repairs texts with ftfy before.
"""

import json
from collections.abc import Mapping, Sequence

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from bert_jax.errors import UserError
from bert_jax.runtime import outside, storage
from bert_jax.runtime.storage import Path

VOCABULARY, MERGES = "vocab.json", "merges.txt"
UNKNOWN = "<unk>"
SUFFIX = "</w>"  # of a word's last piece
# Appended to the released vocabulary (train.py): they open a row, stand between its two
# texts, and end it.
START, DELIMITER, CLASSIFY = "_start_", "_delimiter_", "_classify_"
SPECIAL_TOKENS = (START, DELIMITER, CLASSIFY)
# What `transformers` calls them; a GPT sees no padding, so any piece will do for it.
NAMES = {
    "unk_token": UNKNOWN,
    "pad_token": UNKNOWN,
    "bos_token": START,
    "sep_token": DELIMITER,
    "cls_token": CLASSIFY,
}


def is_one(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer is of this kind."""
    model = tokenizer.model
    return isinstance(model, models.BPE) and model.end_of_word_suffix == SUFFIX


def build(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    normalizer: normalizers.Normalizer,
) -> Tokenizer:
    """Builds a tokenizer; the special tokens that the vocabulary lacks come after it.

    Args:
      vocabulary: each piece's id.
      merges: of two pieces each, the first ones first.
    """
    tokenizer = Tokenizer(
        models.BPE(
            vocab=dict(vocabulary),
            merges=list(merges),
            unk_token=UNKNOWN,
            end_of_word_suffix=SUFFIX,
            continuing_subword_prefix="",
            fuse_unk=False,
        )
    )
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix=SUFFIX)
    return complete(tokenizer)


def complete(tokenizer: Tokenizer) -> Tokenizer:
    """Adds the special tokens that are missing, and their places around texts:
    `_start_ a _classify_`, or `_start_ a _delimiter_ b _classify_`."""
    tokenizer.add_special_tokens([UNKNOWN, *SPECIAL_TOKENS])
    ids = {token: _id(tokenizer, token) for token in SPECIAL_TOKENS}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {CLASSIFY}",
        pair=f"{START} $A {DELIMITER} $B:0 {CLASSIFY}",
        special_tokens=list(ids.items()),
    )
    return tokenizer


def bare(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that adds nothing to a text."""
    form = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps({**form, "post_processor": None}))


def read(path: Path, content: str, normalizer: normalizers.Normalizer) -> Tokenizer:
    """Reads a vocab.json and the merges.txt beside it.

    Args:
      path: of the vocab.json, for errors and for the other file.
      content: of the vocab.json.

    Raises:
      UserError: a file is missing or damaged, or one does not fit the other.
    """
    vocabulary = outside.parse(content, str(path))
    if not isinstance(vocabulary, dict) or not all(
        type(index) is int and index >= 0 for index in vocabulary.values()
    ):
        raise UserError(
            f"{path}: not a byte-pair vocabulary; each piece must have its id, as in "
            f"the {VOCABULARY} of Hugging Face's openai-gpt"
        )
    if UNKNOWN not in vocabulary:
        raise UserError(f"{path}: the vocabulary has no {UNKNOWN}; add it")
    merges = _read_merges(path.parent / MERGES)
    for number, pair in merges:
        missing = {*pair, "".join(pair)} - vocabulary.keys()
        if missing:
            raise UserError(
                f"{path.parent / MERGES}:{number}: {min(missing)!r} is not in "
                f"{path.name}; the two files must be of one vocabulary"
            )
    return build(vocabulary, [pair for _, pair in merges], normalizer)


def _read_merges(path: Path) -> list[tuple[int, tuple[str, str]]]:
    """The merges, each with its line."""
    try:
        storage.require_file(path)
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(
            f"{path}: cannot be read ({why}); a {VOCABULARY} needs it beside it"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: byte {error.start} is not UTF-8") from error
    merges = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise UserError(
                f"{path}:{number}: {line!r:.60} is not two pieces and a space between "
                "them"
            )
        merges.append((number, (parts[0], parts[1])))
    return merges


def check(tokenizer: Tokenizer, architecture: str, where: str) -> None:
    """Raises UserError if a vocabulary is not that of the model's architecture."""
    pairs = is_one(tokenizer)
    if pairs != (architecture == "gpt"):
        kind, model = ("byte-pair", "BERT") if pairs else ("WordPiece", "GPT")
        raise UserError(
            f"{where}: a {kind} vocabulary, but config.model.architecture="
            f"{architecture} is a {model}; name a {model}'s vocabulary, or take the "
            "config of the other model"
        )


def special_ids(tokenizer: Tokenizer) -> tuple[int, int, int, int, int]:
    """The ids of what BERT has as [PAD], [UNK], [CLS], [SEP] and [MASK]; `<unk>` stands
    for the first and the last, which no GPT ever sees."""
    unknown = _id(tokenizer, UNKNOWN)
    start, delimiter = _id(tokenizer, START), _id(tokenizer, DELIMITER)
    return unknown, unknown, start, delimiter, unknown


def last_id(tokenizer: Tokenizer) -> int:
    """The id of the token that ends a row: `_classify_`, or a BERT's [SEP]."""
    return _id(tokenizer, CLASSIFY if is_one(tokenizer) else "[SEP]")


def _id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None, token  # checked when it was loaded
    return found


def files(tokenizer: Tokenizer) -> dict[str, str]:
    """The contents of `vocab.json` and `merges.txt`, as released (without the special
    tokens), and of `tokenizer.json`."""
    model = json.loads(tokenizer.to_str())["model"]
    ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    lines = ["#version: 0.2", *merges]
    return {
        VOCABULARY: json.dumps(dict(ordered), ensure_ascii=False) + "\n",
        MERGES: "".join(f"{line}\n" for line in lines),
        "tokenizer.json": tokenizer.to_str(pretty=True),
    }
