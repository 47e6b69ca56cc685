"""Byte-level BPE (Radford et al. 2019): tokens of the bytes of UTF-8, spaces included.

No text has an unknown token, and a token that begins with a space begins a word. Which
special tokens a vocabulary has, and their order around texts, is read from it.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax.errors import UserError, first_line
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.tokenizer_json import TokenizerJson

VOCABULARY, MERGES = "vocab.json", "merges.txt"  # the files, next to each other
Pair = tuple[str, str]


class SpecialTokens(NamedTuple):
    """Special tokens, in the order of their ids in a vocabulary that is trained."""

    first: str  # first token of a row
    pad: str
    last: str  # last token of a row, and also between two texts
    unk: str
    mask: str


# Each with how often `last` occurs between two texts.
SPECIAL_TOKEN_SETS = {
    SpecialTokens("<s>", "<pad>", "</s>", "<unk>", "<mask>"): 2,
    SpecialTokens("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"): 1,
}


_SPACE = "\u0120"  # as a vocabulary writes it


class ByteLevel(TokenizerJson):
    """Byte-level BPE. A trained vocabulary has the special tokens `special`."""

    files = (VOCABULARY, MERGES)
    before_word = " "

    def __init__(self, special: SpecialTokens):
        self._special = special
        self.name = f"byte-level BPE, as with {special.first} and {special.last}"

    def has(self, tokenizer: Tokenizer) -> bool:
        pre = tokenizer.pre_tokenizer
        if pre is None or not isinstance(tokenizer.model, models.BPE):
            return False
        # Both bytes of this letter become a character. A space may be put before it.
        pieces = "".join(piece for piece, _ in pre.pre_tokenize_str("\u00e9"))
        return pieces.removeprefix(_SPACE) == "Ã©"

    def claims(self, content: str) -> bool:
        return _SPACE in content or "\\u0120" in content

    def read(
        self, path: Path, content: str, normalizer: normalizers.Normalizer
    ) -> Tokenizer:
        """Reads a vocab.json and the merges.txt next to it.

        These leave case and accents as they are.

        Raises:
          UserError: a file is missing or damaged, one does not fit the other, or it has
            special tokens other than SPECIAL_TOKEN_SETS.
        """
        pieces, pairs = read_merges(path, content)
        for special in SPECIAL_TOKEN_SETS:
            # No text has an unknown token.
            if pieces.keys() >= {*special} - {special.unk}:
                return _build(pieces, pairs, special)
        known = " or ".join(map(" ".join, SPECIAL_TOKEN_SETS))
        raise UserError(
            f"{path}: the vocabulary does not have {known}; name a tokenizer.json that "
            "says which tokens are special"
        )

    def complete(self, tokenizer: Tokenizer) -> Tokenizer:
        """Completes it. Also leaves a word's leading space out of its offsets."""
        for special in SPECIAL_TOKEN_SETS if tokenizer.post_processor is None else ():
            needed = {*special} - {special.unk}
            if all(tokenizer.token_to_id(token) is not None for token in needed):
                tokenizer.post_processor = _frame_texts(tokenizer, special)
        tokenizer = super().complete(tokenizer)
        if self.fault(tokenizer):
            return tokenizer
        state = json.loads(tokenizer.to_str())["post_processor"]
        if '"trim_offsets": true' not in json.dumps(state):
            tokenizer.post_processor = _trim_offsets(tokenizer.post_processor)
        return tokenizer

    def export_content(
        self, tokenizer: Tokenizer, heads: Collection[str]
    ) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
        """Returns them. A tagger's tokenizer puts a space before each word, as
        `tasks.ner` does, unless it cuts words in more than one step."""
        tokenizer, fields, special = super().export_content(tokenizer, heads)
        form = json.loads(tokenizer.to_str())
        cuts = form["pre_tokenizer"]
        if cuts["type"] == "ByteLevel" and "token_classification" in heads:
            cuts["add_prefix_space"] = True
            tokenizer = Tokenizer.from_str(json.dumps(form))
        return tokenizer, fields, special

    def continues(self, piece: str) -> bool:
        return not piece.startswith(_SPACE)

    def format_token(self, piece: str) -> str:
        """Returns a token with its space, or as is if its bytes are not characters."""
        text = decoders.ByteLevel().decode([piece])
        return piece if "\ufffd" in text else text

    def text(self, pieces: Iterable[str]) -> str:
        return decoders.ByteLevel().decode(list(pieces)).strip()

    def train(
        self,
        documents: Iterable[str],
        vocab_size: int,
        lowercase: bool,
        strip_accents: bool = True,
    ) -> Tokenizer:
        """Trains as `VocabularyType.train`.

        The vocabulary has the special tokens, the 256 bytes, the learned tokens, and
        [unusedN] where the text yields too little.

        Raises:
          UserError: `vocab_size` is too small.
        """
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        minimum = len(self._special) + len(alphabet)
        if vocab_size <= minimum:
            raise UserError(
                f"config.tokenizer.vocab_size={vocab_size}: byte-level BPE has the "
                f"256 bytes and {len(self._special)} special tokens; at "
                f"least {minimum + 1} is needed"
            )
        lower = normalizers.Lowercase()
        rules: normalizers.Normalizer | None = lower if lowercase else None
        if lowercase and strip_accents:
            steps = [normalizers.NFD(), normalizers.StripAccents(), lower]
            rules = normalizers.Sequence(steps)
        learner = Tokenizer(models.BPE())
        if rules is not None:
            learner.normalizer = rules
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(self._special),
            initial_alphabet=alphabet,
            show_progress=False,
        )
        # A line at a time, because the sentences tokenized later have no line ends.
        lines = (line for text in documents for line in text.split("\n"))
        learner.train_from_iterator(lines, trainer)
        model = json.loads(learner.to_str())["model"]
        pieces = model["vocab"]
        for number in range(vocab_size - len(pieces)):
            pieces[f"[unused{number}]"] = len(pieces)
        pairs = [(first, second) for first, second in model["merges"]]
        return _build(pieces, pairs, self._special, rules)


ANGLED, BRACKETED = map(ByteLevel, SPECIAL_TOKEN_SETS)


def _build(
    pieces: Mapping[str, int],
    pairs: Sequence[Pair],
    special: SpecialTokens,
    normalizer: normalizers.Normalizer | None = None,
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=dict(pieces), merges=list(pairs)))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # As released: the space before a mask belongs to the word that it replaces.
    mask = AddedToken(special.mask, lstrip=True, normalized=False)
    known = [token for token in special[:-1] if token in pieces]
    tokenizer.add_special_tokens([*known, mask])
    tokenizer.post_processor = _frame_texts(tokenizer, special)
    return tokenizer


def _frame_texts(
    tokenizer: Tokenizer, special: SpecialTokens
) -> processors.PostProcessor:
    """Puts the special tokens around texts, and leaves spaces out of offsets."""
    known = [
        (token, tokenizer.token_to_id(token)) for token in (special.first, special.last)
    ]
    between = " ".join([special.last] * SPECIAL_TOKEN_SETS[special])
    template = processors.TemplateProcessing(
        single=f"{special.first} $A {special.last}",
        pair=f"{special.first} $A {between} $B {special.last}",
        special_tokens=known,
    )
    return _trim_offsets(template)


def _trim_offsets(processor: processors.PostProcessor) -> processors.PostProcessor:
    trims = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    return processors.Sequence([trims, processor])


def read_merges(path: Path, content: str) -> tuple[dict[str, int], list[Pair]]:
    """Returns each token's id, and the merges, the first ones first.

    Args:
      path: Path of the vocab.json. merges.txt is next to it.
      content: Content of the vocab.json.

    Raises:
      UserError: a file is missing or damaged, or they are of two vocabularies.
    """
    try:
        pieces = json.loads(content)
        text = (path.parent / MERGES).read_bytes().decode("utf-8-sig")
        lines = text.replace("\r\n", "\n").split("\n")
        if lines[0].startswith("#version"):
            del lines[0]
        merges = [(a, b) for a, b in (line.split(" ") for line in lines if line)]
        models.BPE(vocab=pieces, merges=merges)
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise UserError(
            f"{path}, and {MERGES} beside it: not the two files of one byte-pair "
            f"vocabulary ({first_line(error)})"
        ) from error
    return pieces, merges
