"""Completes the tokenizers of other programs."""

import json
from collections.abc import Container

from tokenizers import Tokenizer, processors


def complete(tokenizer: Tokenizer, special: Container[str]) -> Tokenizer:
    """Keeps a model's own tokens whole, and adds [CLS] and [SEP] if nothing does.

    A text may have special tokens that the model has besides BERT's, such as the marks
    of entities. The name of one of BERT's is text like any other.

    Args:
      special: BERT's.
    """
    form = json.loads(tokenizer.to_str())
    added = [token for token in form["added_tokens"] if token["content"] not in special]
    if any(token["special"] for token in added):
        for token in added:
            token["special"] = False
        tokenizer = Tokenizer.from_str(json.dumps(form))
    if tokenizer.post_processor is None:
        add_marks(tokenizer)
    return tokenizer


def own_special(tokenizer: Tokenizer, special: Container[str]) -> list[int]:
    """The ids of a model's own special tokens, completed or not.

    `complete` has made them ordinary tokens. What still tells them from words that were
    added is that they are found before a text is normalized.

    Args:
      special: BERT's.
    """
    return [
        token["id"]
        for token in json.loads(tokenizer.to_str())["added_tokens"]
        if token["content"] not in special
        if token["special"] or not token["normalized"]
    ]


def add_marks(tokenizer: Tokenizer) -> None:
    """Adds [CLS] and [SEP] to texts and pairs, if the vocabulary has them."""
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    if cls is not None and sep is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
        )
