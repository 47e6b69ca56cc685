"""Vocabularies whose special tokens are read from a tokenizer.json: SentencePiece's
Unigram (Kudo 2018), byte pairs of characters, and WordPieces that use <s> and </s>.

The first and the last token of a row are those that the file puts around a text.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, models

from bert_jax.errors import UserError
from bert_jax.tokenization.wordpiece import VocabularyType, special_id

_SPACE = "\u2581"  # as SentencePiece writes it


class TokenizerJson(VocabularyType):
    """A vocabulary that its tokenizer.json describes completely."""

    files: tuple[str, ...] = ("tokenizer.json",)
    odd_to_longer = True  # `tokenizers`, utils/truncation.rs: longest_first

    def fault(self, tokenizer: Tokenizer) -> str:
        around = tokenizer.encode("").ids
        if len(around) != 2:
            return (
                f"its post_processor adds {len(around)} tokens to a text; one before "
                "and one after it are needed"
            )
        for role in ("pad", "mask"):
            if special_id(tokenizer, role) is None:
                return (
                    f"the vocabulary has no <{role}> or [{role.upper()}]; add it as a "
                    "special token"
                )
        return ""

    def train(
        self,
        documents: Iterable[str],
        vocab_size: int,
        lowercase: bool,
        strip_accents: bool = True,
    ) -> Tokenizer:
        raise UserError(
            f"config.tokenizer.vocab_file is empty: vocabularies of {self.name} are "
            "not trained here; name a tokenizer.json"
        )


class Spaced(TokenizerJson):
    """A vocabulary of SentencePiece's kind, in which a token includes the space before
    it."""

    def continues(self, piece: str) -> bool:
        return not piece.startswith(_SPACE)

    def format_token(self, piece: str) -> str:
        """Returns a token with its space."""
        return piece.replace(_SPACE, " ")

    def text(self, pieces: Iterable[str]) -> str:
        return "".join(pieces).replace(_SPACE, " ").strip()


class Unigram(Spaced):
    """SentencePiece's Unigram."""

    name = "SentencePiece's Unigram"

    def has(self, tokenizer: Tokenizer) -> bool:
        return isinstance(tokenizer.model, models.Unigram)


class CharacterBpe(Spaced):
    """Byte pairs of characters, as Gemma has them."""

    name = "byte pairs of characters"

    def has(self, tokenizer: Tokenizer) -> bool:
        return isinstance(tokenizer.model, models.BPE)


class OtherWordPiece(TokenizerJson):
    """WordPieces between other tokens than [CLS] and [SEP]."""

    name = "WordPieces with other special tokens"

    def has(self, tokenizer: Tokenizer) -> bool:
        if not isinstance(tokenizer.model, models.WordPiece):
            return False
        return tokenizer.encode("").tokens[:1] not in ([], ["[CLS]"])


UNIGRAM, CHARACTER_BPE, OTHER_WORDPIECE = Unigram(), CharacterBpe(), OtherWordPiece()
