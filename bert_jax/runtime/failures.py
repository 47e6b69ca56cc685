"""Turns an exception into the line and exit status that the user sees."""

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage, temporary


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust gave up; its class, no Exception, is in no module."""
    return type(error).__name__ == "PanicException"


def describe(error: BaseException) -> tuple[int | None, str]:
    """Exit status and error line; the status is None if the user did not cause it."""
    match error:
        case UserError():
            return 2, str(error)
        case _ if storage.is_client_error(error):
            return 2, (
                f"bucket: {type(error).__name__}: {str(error)[:300]}; check its name "
                "and this machine's access (gcloud auth application-default login)"
            )
        case OSError():  # a full disk, a read-only folder
            what = f"{error.filename or 'writing'}: {error.strerror or error}"
            full = error.errno in temporary.FULL
            then = "make room there" if full else "name another place"
            return 2, f"{what}; {then} and run the same command again"
        case MemoryError():
            return 2, (
                "out of memory on this machine: lower the batch size or the size of "
                f"the data ({str(error)[:150]})"
            )
        case RuntimeError() if "RESOURCE_EXHAUSTED" in str(error):  # JAX's
            return 2, (
                "out of memory on the device: raise config.train.micro_batches or "
                "config.mesh.fsdp, lower config.train.batch_size, or set "
                "config.model.remat=full "
                f"({str(error).splitlines()[0][:150]})"
            )
        case _ if is_panic(error):
            return 2, (
                f"the tokenizer gave up on a text ({first_line(error)}); a "
                "regular expression of its tokenizer.json is the cause: use a "
                "vocab.txt, or a simpler expression"
            )
    return None, f"{type(error).__name__}: {str(error)[:150]}"
