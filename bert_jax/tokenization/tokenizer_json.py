"""Vocabularies whose special tokens are read from a tokenizer.json: SentencePiece's
Unigram (Kudo 2018), and WordPieces that use <s> and </s>.

The first and the last token of a row are those that the file puts around a text.
"""

from collections.abc import Collection, Iterable
from typing import Any

from tokenizers import Tokenizer, models

from bert_jax.errors import UserError
from bert_jax.tokenization.wordpiece import (
    SpecialIds,
    VocabularyType,
    complete_tokenizer,
)

_SPACE = "\u2581"  # as SentencePiece writes it


class TokenizerJson(VocabularyType):
    """A vocabulary that its tokenizer.json describes completely."""

    files: tuple[str, ...] = ("tokenizer.json",)
    odd_to_longer = True  # `tokenizers`, utils/truncation.rs: longest_first

    def complete(self, tokenizer: Tokenizer) -> Tokenizer:
        """Completes it, if it has the special tokens that a model needs."""
        if self.fault(tokenizer):
            return tokenizer
        special = map(tokenizer.id_to_token, self.special_ids(tokenizer))
        return complete_tokenizer(tokenizer, {*filter(None, special)})

    def contents(self, tokenizer: Tokenizer) -> dict[str, str]:
        return {"tokenizer.json": tokenizer.to_str(pretty=True)}

    def saved(
        self, tokenizer: Tokenizer, heads: Collection[str]
    ) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
        ids = self.special_ids(tokenizer)._asdict()
        special = {f"{k}_token": tokenizer.id_to_token(i) or "" for k, i in ids.items()}
        if special["cls_token"] == "<s>":  # fairseq's names of the same two
            special |= {"bos_token": special["cls_token"]}
            special |= {"eos_token": special["sep_token"]}
        return tokenizer, {}, special

    def fault(self, tokenizer: Tokenizer) -> str:
        around = tokenizer.encode("").ids
        if len(around) != 2:
            return (
                f"its post_processor adds {len(around)} tokens to a text; one before "
                "and one after it are needed"
            )
        for role in ("pad", "mask"):
            if _id(tokenizer, role) is None:
                return (
                    f"the vocabulary has no <{role}> or [{role.upper()}]; add it as a "
                    "special token"
                )
        return ""

    def special_ids(self, tokenizer: Tokenizer) -> SpecialIds:
        """Returns the ids, with padding's also for unknown text if no token has it."""
        first, last = tokenizer.encode("").ids
        pad, unk, mask = (_id(tokenizer, role) for role in ("pad", "unk", "mask"))
        assert pad is not None and mask is not None  # see `fault`
        return SpecialIds(pad, pad if unk is None else unk, first, last, mask)

    def between(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        return tuple(tokenizer.encode("", "").ids[1:-1])

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


class Unigram(TokenizerJson):
    """SentencePiece's Unigram, in which a token includes the space before it."""

    name = "SentencePiece's Unigram"
    unknown = "<unk>"

    def has(self, tokenizer: Tokenizer) -> bool:
        return isinstance(tokenizer.model, models.Unigram)

    def continues(self, piece: str) -> bool:
        return not piece.startswith(_SPACE)

    def shown(self, piece: str) -> str:
        """Returns a token with its space."""
        return piece.replace(_SPACE, " ")

    def text(self, pieces: Iterable[str]) -> str:
        return "".join(pieces).replace(_SPACE, " ").strip()


class OtherWordPiece(TokenizerJson):
    """WordPieces between other tokens than [CLS] and [SEP]."""

    name = "WordPieces with other special tokens"

    def has(self, tokenizer: Tokenizer) -> bool:
        if not isinstance(tokenizer.model, models.WordPiece):
            return False
        return tokenizer.encode("").tokens[:1] not in ([], ["[CLS]"])

    def saved(
        self, tokenizer: Tokenizer, heads: Collection[str]
    ) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
        _, fields, _ = VocabularyType.saved(self, tokenizer, heads)
        tokenizer, _, special = super().saved(tokenizer, heads)
        return tokenizer, fields, special


UNIGRAM, OTHER_WORDPIECE = Unigram(), OtherWordPiece()


def _id(tokenizer: Tokenizer, role: str) -> int | None:
    """Returns a special token's id, preferably in the form of a row's first token."""
    forms = [f"<{role}>", f"[{role.upper()}]"]
    first = tokenizer.encode("").tokens[0]
    forms.sort(key=lambda form: form[0] != first[0])
    if role == "unk":
        forms.insert(0, getattr(tokenizer.model, "unk_token", None) or forms[0])
    ids = map(tokenizer.token_to_id, forms)
    return next((index for index in ids if index is not None), None)
