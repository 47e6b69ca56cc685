"""Token ids of sentences, with each word given to the tokenizer once."""

import json
import re
from array import array
from collections.abc import Sequence

from tokenizers import Tokenizer

# A punctuation character of ASCII, or what stands between two of them or spaces.
_UNIT = re.compile(r"[^ !-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
# Bounds the memory of the ids that are kept: about 50 MB for English.
_CHARACTERS = 2_000_000


class Words:
    """Encodes sentences as the tokenizer does, special tokens treated as text.

    BERT's tokenizer cuts at spaces and punctuation, and what stands between them has
    the same ids everywhere. So their ids are kept, and most of a text is looked up.
    With another kind of tokenizer the same is done with whole sentences.
    """

    def __init__(self, tokenizer: Tokenizer):
        """Copies the tokenizer."""
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._by_word = _cuts_at_spaces(self._tokenizer)
        self._known: dict[str, bytes] = {}  # ids as int32
        self._characters = 0

    def encode(self, sentences: Sequence[str]) -> list[bytes]:
        """The ids of each sentence, as the bytes of an int32 array."""
        if self._by_word:
            units = [_UNIT.findall(sentence) for sentence in sentences]
        else:
            units = [[sentence] for sentence in sentences]
        if self._characters > _CHARACTERS:
            self._known, self._characters = {}, 0
        new = list(set().union(*units).difference(self._known))
        # A literal "[MASK]" in the text is text, as in create_pretraining_data.py.
        self._tokenizer.encode_special_tokens = True
        encodings = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        for unit, encoding in zip(new, encodings, strict=True):
            self._known[unit] = array("i", encoding.ids).tobytes()
            self._characters += len(unit)
        find = self._known.__getitem__
        return [b"".join(map(find, sentence)) for sentence in units]


def _cuts_at_spaces(tokenizer: Tokenizer) -> bool:
    parts = json.loads(tokenizer.to_str())
    kinds = [(parts[name] or {}).get("type") for name in _BERT]
    # Tokens that are not special are found before the text is cut.
    only_special = all(token["special"] for token in parts["added_tokens"])
    return kinds == list(_BERT.values()) and only_special


_BERT = {
    "normalizer": "BertNormalizer",
    "pre_tokenizer": "BertPreTokenizer",
    "model": "WordPiece",
}
