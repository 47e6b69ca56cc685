"""Token ids of sentences, with each word given to the tokenizer once."""

import re
from array import array
from collections.abc import Sequence

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bert_jax import tokenization

# A punctuation character of ASCII, or the text between two of them or spaces.
_UNIT = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
# Bounds the memory of the cached ids: about 50 MB for English.
_KNOWN = 300_000  # words


class Words:
    """Encodes sentences as the tokenizer does, special tokens treated as text.

    A tokenizer that cuts at spaces and punctuation, as BERT's, gives the text between
    them the same ids everywhere, so most of a text is looked up. Another kind of
    tokenizer gets the sentences as they are.
    """

    def __init__(self, tokenizer: Tokenizer):
        """Copies the tokenizer."""
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        # Text before a sentence that continues a text.
        self.before_word = tokenization.kind_of(tokenizer).before_word
        # Tokens that are not special are found before the text is cut.
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._by_word = (
            tokenization.kind_of(self._tokenizer).has(self._tokenizer)
            and isinstance(self._tokenizer.normalizer, normalizers.BertNormalizer)
            and isinstance(
                self._tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer
            )
            and all(token.special for token in added)
        )
        self._lowercase = self._by_word and self._tokenizer.normalizer.lowercase
        self._known = _Known(self._tokenizer)

    def encode(self, sentences: Sequence[str]) -> list[bytes]:
        """Returns the ids of each sentence, as the bytes of an int32 array."""
        # A literal "[MASK]" in the text is text, as in create_pretraining_data.py.
        self._tokenizer.encode_special_tokens = True
        if not self._by_word:
            encodings = self._tokenizer.encode_batch_fast(
                sentences, add_special_tokens=False
            )
            return [array("i", encoding.ids).tobytes() for encoding in encodings]
        if self._lowercase:  # fewer words, and bytes.lower changes only ASCII
            sentences = [s.encode().lower().decode() for s in sentences]
        if len(self._known) > _KNOWN:
            self._known.clear()
        ids = self._known.__getitem__
        return [b"".join(map(ids, _UNIT.findall(sentence))) for sentence in sentences]


class _Known(dict[str, bytes]):
    """Ids of every word looked up so far."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    def __missing__(self, word: str) -> bytes:
        if word.isascii() and word.isalnum() and word == word.lower():
            # Nothing to normalize or cut, and the model alone takes a third of the
            # time.
            token_ids = [token.id for token in self.tokenizer.model.tokenize(word)]
        else:
            token_ids = self.tokenizer.encode(word, add_special_tokens=False).ids
        self[word] = ids = array("i", token_ids).tobytes()
        return ids
