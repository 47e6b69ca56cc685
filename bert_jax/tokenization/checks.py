"""What a vocabulary's file must be."""

from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path


def ids(path: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError if an id would have no row in the embeddings."""
    every = tokenizer.get_vocab(with_added_tokens=True).values()
    if sorted(every) != list(range(len(every))):
        raise UserError(
            f"{path}: the ids of its {len(every)} pieces must be 0 to "
            f"{len(every) - 1}, each once; renumber them"
        )
    added = tokenizer.encode("", "").ids  # what the post-processor adds to texts
    if any(index >= len(every) for index in added):
        raise UserError(
            f"{path}: its post_processor adds the id {max(added)}, but there are "
            f"{len(every)} pieces; correct it"
        )
