"""What a vocabulary's file must be."""

from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path


def number_of_ids(path: Path, tokenizer: Tokenizer) -> int:
    """Counts the ids from 0 to the highest; a few may have no piece.

    Raises:
      UserError: an id has two pieces, or most have none.
    """
    every = tokenizer.get_vocab(with_added_tokens=True).values()
    if len({*every}) < len(every) or max(every, default=0) > 2 * len(every):
        raise UserError(
            f"{path}: the ids of its {len(every)} pieces must be 0 to "
            f"{len(every) - 1}, each once; save it again with the program that made it"
        )
    added = tokenizer.encode("", "").ids  # what the post-processor adds to texts
    if any(index > max(every) for index in added):
        raise UserError(
            f"{path}: its post_processor adds the id {max(added)}, but the "
            f"last piece has {max(every)}; correct it"
        )
    return 1 + max(every, default=-1)
