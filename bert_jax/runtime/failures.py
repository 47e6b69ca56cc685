"""What an error means to the person who runs the program."""

from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage


def describe(error: Exception) -> tuple[int | None, str]:
    """Exit status and line for an error that a user can cause; None for another."""
    match error:
        case UserError():
            return 2, str(error)
        case _ if storage.is_trouble(error):
            return 2, (
                f"Google Cloud Storage: {type(error).__name__}: {str(error)[:300]}; is "
                "the bucket's name right, and may this machine use it (gcloud auth "
                "application-default login)?"
            )
        case OSError():  # a full disk, a folder that may not be written
            place = error.filename or "writing"
            return 2, f"{place}: {error.strerror or error}"
        case MemoryError():
            return 2, (
                "this machine's memory does not hold this: lower the batch size or "
                f"the size of the data ({str(error)[:150]})"
            )
        case RuntimeError() if "RESOURCE_EXHAUSTED" in str(error):  # JAX's
            return 2, (
                "the device's memory does not hold this: raise "
                "config.train.micro_batches or config.mesh.fsdp, lower "
                "config.train.batch_size, or set config.model.remat=full "
                f"({str(error).splitlines()[0][:150]})"
            )
        # A program that runs at once raises what JAX else wraps: a ValueError.
        case RuntimeError() | ValueError() if processes.is_loss(error):
            line = str(error).splitlines()[0][:150]
            return 1, f"another process of this run has ended ({line})"
    return None, f"{type(error).__name__}: {str(error)[:150]}"
