"""GPT's byte-pair vocabulary: vocab.json, merges.txt, and three special tokens.

The rules are those of `transformers`' OpenAIGPTTokenizer: BERT's normalizer and
splitting of words, then the merges. The published code (text_utils.py) splits with
spaCy and repairs texts with ftfy before.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.tokenization import wordpiece
from bert_jax.tokenization.byte_level import (
    MERGES,
    VOCABULARY,
    Pair,
    read_merges,
)
from bert_jax.tokenization.wordpiece import SpecialIds, VocabularyType, bert_normalizer

UNKNOWN = "<unk>"
SUFFIX = "</w>"  # ends a word's last token
# Appended to the released vocabulary (train.py): they open a row, separate its two
# texts, and end it.
START, DELIMITER, CLASSIFY = "_start_", "_delimiter_", "_classify_"
SPECIAL_TOKENS = (START, DELIMITER, CLASSIFY)
# Their names in `transformers`. A GPT sees no padding, so any token will do for it.
NAMES = {
    "unk_token": UNKNOWN,
    "pad_token": UNKNOWN,
    "bos_token": START,
    "sep_token": DELIMITER,
    "cls_token": CLASSIFY,
}


def build(
    pieces: Mapping[str, int],
    pairs: Sequence[Pair],
    normalizer: normalizers.Normalizer,
) -> Tokenizer:
    """Builds a tokenizer. Special tokens that the vocabulary lacks come after it.

    Args:
      pieces: Id of each token.
      pairs: Merges, the first ones first.
    """
    tokenizer = Tokenizer(
        models.BPE(
            vocab=dict(pieces),
            merges=list(pairs),
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
    """Adds the missing special tokens and their positions around texts:
    `_start_ a _classify_`, or `_start_ a _delimiter_ b _classify_`."""
    tokenizer.add_special_tokens([UNKNOWN, *SPECIAL_TOKENS])
    ids = {token: _id(tokenizer, token) for token in SPECIAL_TOKENS}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {CLASSIFY}",
        pair=f"{START} $A {DELIMITER} $B:0 {CLASSIFY}",
        special_tokens=list(ids.items()),
    )
    return tokenizer


def remove_template(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a copy that adds nothing to a text."""
    form = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps({**form, "post_processor": None}))


class BytePairs(VocabularyType):
    """GPT's kind of vocabulary."""

    name = "byte pairs"
    files = (VOCABULARY, MERGES)
    around = 0
    exclusive = True

    def has(self, tokenizer: Tokenizer) -> bool:
        model = tokenizer.model
        return isinstance(model, models.BPE) and model.end_of_word_suffix == SUFFIX

    def claims(self, content: str) -> bool:
        return f'{SUFFIX}"' in content

    def read(
        self, path: Path, content: str, normalizer: normalizers.Normalizer
    ) -> Tokenizer:
        """Reads a vocab.json and the merges.txt next to it.

        Args:
          path: Path of the vocab.json, for errors and for the other file.
          content: Content of the vocab.json.

        Raises:
          UserError: A file is missing or damaged, or one does not fit the other.
        """
        pieces, pairs = read_merges(path, content)
        if UNKNOWN not in pieces:
            raise UserError(f"{path}: the vocabulary has no {UNKNOWN}; add it")
        return build(pieces, pairs, normalizer)

    def complete(self, tokenizer: Tokenizer) -> Tokenizer:
        return complete(tokenizer)

    def export_content(
        self, tokenizer: Tokenizer, heads: Collection[str]
    ) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
        """Returns a tokenizer to save, as every kind does.

        A special token's name in a text is text, as it is here.
        """
        # A language model continues where the text ends. A head reads `_classify_`.
        if not set(heads) - {"masked_lm"}:
            tokenizer = remove_template(tokenizer)
        return tokenizer, {"split_special_tokens": True}, NAMES

    def fault(self, tokenizer: Tokenizer) -> str:
        del tokenizer  # `complete` adds the missing tokens
        return ""

    def special_ids(self, tokenizer: Tokenizer) -> SpecialIds:
        """Returns the special ids.

        `<unk>` replaces [PAD] and [MASK], which no GPT sees.
        """
        unknown = _id(tokenizer, UNKNOWN)
        start, delimiter = _id(tokenizer, START), _id(tokenizer, DELIMITER)
        last, between = _id(tokenizer, CLASSIFY), (delimiter,)
        return SpecialIds(unknown, unknown, start, delimiter, unknown, last, between)

    def text(self, pieces: Iterable[str]) -> str:
        return "".join(pieces).replace(SUFFIX, " ").strip()

    def train(
        self,
        documents: Iterable[str],
        vocab_size: int,
        lowercase: bool,
        strip_accents: bool = True,
    ) -> Tokenizer:
        """Trains a tokenizer, as `VocabularyType.train` does.

        `<unk>` is at 0, as released, and the three special tokens are the last.
        """
        normalizer = bert_normalizer(lowercase, strip_accents)
        documents, special_count = list(documents), len(SPECIAL_TOKENS) + 1
        alphabet = wordpiece.frequent_characters(
            documents, vocab_size, special_count, normalizer
        )
        # As there, in a fixed order. A word's last character is a separate token.
        ends = [c + SUFFIX for c in alphabet]
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - special_count + 1,
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
        missing = vocab_size - special_count + 1 - len(model["vocab"])
        for number in range(missing):
            model["vocab"][f"[unused{number}]"] = len(model["vocab"])
        learnt = [(first, second) for first, second in model["merges"]]
        return build(model["vocab"], learnt, normalizer)


BYTE_PAIRS = BytePairs()


def _id(tokenizer: Tokenizer, token: str) -> int:
    index = tokenizer.token_to_id(token)
    assert index is not None, token  # checked when it was loaded
    return index
