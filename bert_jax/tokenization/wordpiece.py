"""WordPiece, BERT's kind of vocabulary, and the methods that other kinds override."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Fields of tokenizer_config.json, and those of BERT's normalizer.
NORMALIZER_FIELDS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Longer words become [UNK]: WordpieceTokenizer in tokenization.py.
MAX_CHARACTERS_PER_WORD = 200
# White space at a line's end, as Unicode has it (Python counts four separators more),
# but for U+2028, a token of the Chinese vocabulary.
_END = re.compile(r"[^\S\x1c-\x1f\u2028]+\Z")
# The released vocabularies have [PAD] at 0 and the other special tokens from here on.
_FIRST_SPECIAL = 100
# Smaller vocabularies have no room to spare for [unusedN].
_LAYOUT_FROM = 10_000
# Maximum characters in a trained vocabulary, the most frequent ones. The released
# uncased vocabulary has 997.
_MAX_ALPHABET = 1000


class SpecialIds(NamedTuple):
    """The ids of the special tokens, or of their equivalents in another kind."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    last: int  # ends a row: [SEP], or another one
    between: tuple[int, ...]  # between the two texts of a pair


class VocabularyType:
    """A kind of vocabulary: WordPiece, or a subclass that overrides the differences.

    Attributes:
      name: Name in messages and in metadata.json.
      files: The vocabulary, and any files that must be next to it.
      around: Number of special tokens around a text in pre-training.
      before_word: Text before a word, or a sentence, inside a text, which makes a
        difference to its tokens.
      exclusive: Whether only one family's models have such vocabularies.
      odd_to_longer: Whether two texts that are cut to an odd number of tokens leave one
        more to the longer of the two, or the second. Otherwise the first always gets
        it.
    """

    name = "WordPieces"
    files: tuple[str, ...] = ("vocab.txt",)
    around = 2
    before_word = ""
    exclusive = False
    odd_to_longer = False

    def has(self, tokenizer: Tokenizer) -> bool:
        """Returns whether a vocabulary is of this kind."""
        return isinstance(tokenizer.model, models.WordPiece)

    def claims(self, content: str) -> bool:
        """Returns whether a file whose name several kinds share is of this kind."""
        return True

    def read(
        self, path: Path, content: str, normalizer: normalizers.Normalizer
    ) -> Tokenizer:
        """Reads a vocabulary.

        Args:
          path: Path of its file, for errors and for the files next to it.
          content: Content of the file.

        Raises:
          UserError: a file is missing or damaged.
        """
        return assemble_tokenizer(_lines(path, content), normalizer)

    def complete(self, tokenizer: Tokenizer) -> Tokenizer:
        """Completes a tokenizer.json that another program has written.

        Adds [CLS] and [SEP] if nothing does, and keeps the model's own tokens whole: a
        text may have special tokens that it has in addition to BERT's, such as the
        markers of entities. The name of one of BERT's is text like any other.
        """
        if len(tokenizer.encode("").ids) != 2:
            add_special_tokens(tokenizer)
        if self.fault(tokenizer):
            return tokenizer
        ids = {*self.special_ids(tokenizer)[:5]}
        form = json.loads(tokenizer.to_str())
        own = [token for token in form["added_tokens"] if token["id"] not in ids]
        if not any(token["special"] for token in own):
            return tokenizer
        for token in own:
            token["special"] = False
        return Tokenizer.from_str(json.dumps(form))

    def export_content(
        self, tokenizer: Tokenizer, heads: Collection[str]
    ) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
        """Returns the content of an export for `transformers`: the tokenizer, fields of
        tokenizer_config.json, and the names of the special tokens.

        Args:
          heads: Heads of the model. A tagger reads words.
        """
        rules = json.loads(tokenizer.to_str())["normalizer"] or {}
        fields = {
            theirs: rules[ours]
            for theirs, ours in NORMALIZER_FIELDS.items()
            if rules.get("type") == "BertNormalizer"
        }
        roles, ids = SpecialIds._fields[:5], self.special_ids(tokenizer)[:5]
        special = {
            f"{role}_token": tokenizer.id_to_token(index) or ""
            for role, index in zip(roles, ids, strict=True)
        }
        if special["cls_token"] == "<s>":  # fairseq's names of the same two
            special["bos_token"] = special["cls_token"]
            special["eos_token"] = special["sep_token"]
        return tokenizer, fields, special

    def fault(self, tokenizer: Tokenizer) -> str:
        """Returns what a model needs and it lacks, or an empty text."""
        every, known = " ".join(SPECIAL_TOKENS), tokenizer.token_to_id
        missing = [token for token in SPECIAL_TOKENS if known(token) is None]
        end = f"BERT needs {every}: add it as a line of its own"
        return f"the vocabulary has no {missing[0]}; {end}" if missing else ""

    def special_ids(self, tokenizer: Tokenizer) -> SpecialIds:
        """Returns the ids of [PAD], [UNK], [CLS], [SEP] and [MASK], or of the tokens in
        their place. Padding's is also unknown text's if no token is."""
        first, last = tokenizer.encode("").ids
        between = tuple(tokenizer.encode("", "").ids[1:-1])
        pad, unk, mask = (special_id(tokenizer, x) for x in ("pad", "unk", "mask"))
        assert pad is not None and mask is not None  # see `fault`
        unk = pad if unk is None else unk
        return SpecialIds(pad, unk, first, last, mask, last, between)

    def continues(self, piece: str) -> bool:
        """Returns whether a token continues a word, if no special token precedes it."""
        return piece.startswith("##")

    def format_token(self, piece: str) -> str:
        """Returns a token as it appears in answers."""
        return piece

    def text(self, pieces: Iterable[str]) -> str:
        """Joins tokens into text again."""
        return " ".join(pieces).replace(" ##", "").strip()

    def train(
        self,
        documents: Iterable[str],
        vocab_size: int,
        lowercase: bool,
        strip_accents: bool = True,
    ) -> Tokenizer:
        """Trains a vocabulary of exactly `vocab_size` tokens.

        With 10,000 tokens or more, the special tokens are at 0 and 100 to 103,
        [unusedN] between them, as in the released vocabularies. With fewer, they are at
        0 to 4. If the text yields too few tokens, [unusedN] pad the end. The same
        documents give the same vocabulary.

        Args:
          documents: The text, all of which is in memory.
          vocab_size: Number of tokens, special tokens included.
          lowercase: Whether to lower the case and, with `strip_accents`, strip accents.
          strip_accents: See `lowercase`.
        """
        first = list(SPECIAL_TOKENS)
        if vocab_size >= _LAYOUT_FROM:
            first[1:1] = [f"[unused{n}]" for n in range(_FIRST_SPECIAL - 1)]
        normalizer = bert_normalizer(lowercase, strip_accents)
        documents = list(documents)
        letters = frequent_characters(documents, vocab_size, len(first), normalizer)
        # The trainer numbers characters in hash order, which differs from run to run,
        # and breaks ties by these numbers. As special tokens they have a fixed order.
        characters = letters + ["##" + c for c in letters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size - len(first),
            special_tokens=characters,
            limit_alphabet=0,
            show_progress=False,
        )
        # A mistake of the stubs of `tokenizers`: the vocabulary may be left out.
        learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
        learner.normalizer = normalizer
        learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        learner.train_from_iterator(documents, trainer)
        learnt = learner.get_vocab(with_added_tokens=True)
        pieces = first + sorted(learnt, key=lambda piece: learnt[piece])
        unused = len(first) - len(SPECIAL_TOKENS)
        missing = vocab_size - len(pieces)
        pieces += [f"[unused{n}]" for n in range(unused, unused + missing)]
        return build_tokenizer(pieces, lowercase, strip_accents)


WORDPIECE = VocabularyType()


def special_id(tokenizer: Tokenizer, role: str) -> int | None:
    """Returns a special token's id, preferably in the form of a row's first token."""
    forms = [f"<{role}>", f"[{role.upper()}]"]
    first = tokenizer.encode("").tokens[0]
    forms.sort(key=lambda form: form[0] != first[0])
    if role == "unk":
        forms.insert(0, getattr(tokenizer.model, "unk_token", None) or forms[0])
    ids = map(tokenizer.token_to_id, forms)
    return next((index for index in ids if index is not None), None)


def frequent_characters(
    documents: Sequence[str],
    vocab_size: int,
    reserved: int,
    normalizer: normalizers.Normalizer,
) -> list[str]:
    """Returns the most frequent characters, sorted.

    Args:
      reserved: Number of the vocabulary's tokens that are not learned.
    """
    counts: Counter[str] = Counter()
    for text in documents:
        counts.update(normalizer.normalize_str(text))
    # A small vocabulary keeps half of its tokens for more than single characters.
    room = min(_MAX_ALPHABET, (vocab_size - reserved) // 4)
    letters = [c for c in counts if not c.isspace()]
    frequent = sorted(sorted(letters, key=lambda c: (-counts[c], c))[:room])
    if not frequent:
        raise UserError(
            f"cannot train {vocab_size} pieces on {len(documents)} documents: "
            "raise tokenizer.vocab_size or give more text"
        )
    return frequent


def tokens_by_id(tokenizer: Tokenizer) -> list[str]:
    """Returns the vocabulary as a list, in which a token's index is its id."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(vocabulary, key=lambda piece: vocabulary[piece])


def unused_names(taken: Container[str]) -> Iterator[str]:
    """Yields [unused0], [unused1], ... without those that are taken.

    No text has such a token, because a bracket is always a separate word.
    """
    every = (f"[unused{number}]" for number in itertools.count())
    return (name for name in every if name not in taken)


def fill_ids(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Gives every id below `size` that has no token one of `unused_names`."""
    if size <= tokenizer.get_vocab_size():
        return tokenizer
    pieces = tokenizer.get_vocab(with_added_tokens=True)
    missing = sorted({*range(size)} - {*pieces.values()})
    form = json.loads(tokenizer.to_str())
    # Tokens that are only added to a vocabulary would be numbered after the new ones.
    pieces |= dict(zip(unused_names(pieces), missing, strict=False))
    vocabulary = form["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
        least = min(score for _, score in vocabulary)
        more = sorted(pieces, key=lambda piece: pieces[piece])[len(vocabulary) :]
        vocabulary += [[piece, least] for piece in more]
    else:
        vocabulary |= pieces
    return Tokenizer.from_str(json.dumps(form))


def bert_normalizer(
    lowercase: bool, strip_accents: bool = True
) -> normalizers.BertNormalizer:
    """Returns BERT's normalizer, which strips accents only if it lowers the case."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lowercase and strip_accents,
        lowercase=lowercase,
    )


def build_tokenizer(
    pieces: list[str], lowercase: bool, strip_accents: bool = True
) -> Tokenizer:
    """Builds a tokenizer from a vocabulary, in which a token's index is its id."""
    return assemble_tokenizer(pieces, bert_normalizer(lowercase, strip_accents))


def assemble_tokenizer(
    pieces: list[str], normalizer: normalizers.Normalizer
) -> Tokenizer:
    """Builds a tokenizer as `build_tokenizer`, with a normalizer."""
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.WordPiece(  # type: ignore[call-arg] # missing in the stubs
            vocab=vocabulary,
            unk_token="[UNK]",
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([t for t in SPECIAL_TOKENS if t in vocabulary])
    add_special_tokens(tokenizer)
    return tokenizer


def _lines(path: Path, content: str) -> list[str]:
    """Reads the tokens of a vocab.txt by id, as `transformers` does.

    Every line is an id. White space at its end is not part of the token. Of equal
    lines, blank ones too, the last counts. The other ids get names that no text has.

    Raises:
      UserError: the file is empty.
    """
    # Not str.splitlines, which splits at U+2028.
    every = content.removesuffix("\n").split("\n")
    lines = [_END.sub("", x) or x.rstrip(" \t\r") for x in every]
    if not any(lines):
        raise UserError(f"{path}: the vocabulary is empty; write one piece per line")
    ids = {line: index for index, line in enumerate(lines)}
    spare = unused_names(ids)
    return [x if ids[x] == index else next(spare) for index, x in enumerate(lines)]


def custom_special_ids(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of special tokens other than BERT's, completed or not.

    `VocabularyType.complete` has made them ordinary tokens. They still differ from
    added words: they are found before a text is normalized.
    """
    return [
        token["id"]
        for token in json.loads(tokenizer.to_str())["added_tokens"]
        if token["content"] not in SPECIAL_TOKENS
        if token["special"] or not token["normalized"]
    ]


def add_special_tokens(tokenizer: Tokenizer) -> None:
    """Adds [CLS] and [SEP] to texts and pairs, if the vocabulary has them."""
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    if cls is not None and sep is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
        )
