"""GPT's byte-pair vocabulary: vocab.json, merges.txt, and three special tokens.

The rules are those of `transformers`' OpenAIGPTTokenizer: BERT's normalizer and
splitting of words, then the merges. The published code (text_utils.py) splits with
spaCy and repairs texts with ftfy before.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax.data import vocabulary
from bert_jax.errors import UserError
from bert_jax.runtime import storage, untrusted
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.wordpiece import Kind, SpecialIds, bert_normalizer

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


def build(
    pieces: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    normalizer: normalizers.Normalizer,
) -> Tokenizer:
    """Builds a tokenizer; the special tokens that the vocabulary lacks come after it.

    Args:
      pieces: each one's id.
      merges: of two pieces each, the first ones first.
    """
    tokenizer = Tokenizer(
        models.BPE(
            vocab=dict(pieces),
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


class BytePairs(Kind):
    """GPT's kind of vocabulary."""

    name = "byte pairs"
    files = (VOCABULARY, MERGES)
    unknown = UNKNOWN
    around = 0

    def has(self, tokenizer: Tokenizer) -> bool:
        model = tokenizer.model
        return isinstance(model, models.BPE) and model.end_of_word_suffix == SUFFIX

    def read(
        self, path: Path, content: str, normalizer: normalizers.Normalizer
    ) -> Tokenizer:
        """Reads a vocab.json and the merges.txt beside it.

        Args:
          path: of the vocab.json, for errors and for the other file.
          content: of the vocab.json.

        Raises:
          UserError: a file is missing or damaged, or one does not fit the other.
        """
        vocabulary = untrusted.parse(content, str(path))
        if not isinstance(vocabulary, dict) or not all(
            type(index) is int and 0 <= index < 2**32 for index in vocabulary.values()
        ):
            raise UserError(
                f"{path}: not a byte-pair vocabulary; each piece must have its id, as "
                f"in the {VOCABULARY} of Hugging Face's openai-gpt"
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

    def complete(self, tokenizer: Tokenizer) -> Tokenizer:
        return complete(tokenizer)

    def contents(self, tokenizer: Tokenizer) -> dict[str, str]:
        """Without the special tokens, as released, but for tokenizer.json."""
        model = json.loads(tokenizer.to_str())["model"]
        ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        lines = ["#version: 0.2", *merges]
        return {
            VOCABULARY: json.dumps(dict(ordered), ensure_ascii=False) + "\n",
            MERGES: "".join(f"{line}\n" for line in lines),
            "tokenizer.json": tokenizer.to_str(pretty=True),
        }

    def special_ids(self, tokenizer: Tokenizer) -> SpecialIds:
        """`<unk>` stands for [PAD] and [MASK], which no GPT ever sees."""
        unknown = _id(tokenizer, UNKNOWN)
        start, delimiter = _id(tokenizer, START), _id(tokenizer, DELIMITER)
        return SpecialIds(unknown, unknown, start, delimiter, unknown)

    def last_id(self, tokenizer: Tokenizer) -> int:
        return _id(tokenizer, CLASSIFY)

    def text(self, pieces: Iterable[str]) -> str:
        return "".join(pieces).replace(SUFFIX, " ").strip()

    def train(
        self,
        documents: Iterable[str],
        vocab_size: int,
        lowercase: bool,
        strip_accents: bool = True,
    ) -> Tokenizer:
        """As `vocabulary.train`; `<unk>` is at 0, as released, and the three special
        tokens are the last."""
        normalizer = bert_normalizer(lowercase, strip_accents)
        documents, own = list(documents), len(SPECIAL_TOKENS) + 1
        alphabet = vocabulary.alphabet(documents, vocab_size, own, normalizer)
        # As there, in a fixed order; a word's last character is a piece of its own.
        ends = [c + SUFFIX for c in alphabet]
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - own + 1,
            special_tokens=[UNKNOWN, *alphabet, *ends],
            limit_alphabet=0,
            end_of_word_suffix=SUFFIX,
            show_progress=False,
        )
        learner = Tokenizer(models.BPE(end_of_word_suffix=SUFFIX))
        learner.normalizer = normalizer
        learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        learner.train_from_iterator(documents, trainer)
        model = json.loads(learner.to_str())["model"]
        missing = vocab_size - own + 1 - len(model["vocab"])
        for number in range(missing):
            model["vocab"][f"[unused{number}]"] = len(model["vocab"])
        merges = [(first, second) for first, second in model["merges"]]
        return build(model["vocab"], merges, normalizer)


BYTE_PAIRS = BytePairs()


def _id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None, token  # checked when it was loaded
    return found
