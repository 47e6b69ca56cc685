"""Turns an exception into a line for the user and an exit status."""

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import storage

_BUCKETS = ("gcsfs", "google", "aiohttp", "botocore")  # their clients' modules


def describe_failure(error: BaseException) -> tuple[int | None, str]:
    """Returns exit status (None if the user did not cause it) and error line."""
    named = f"{type(error).__name__}: {str(error)[:300]}"
    client = type(error).__module__.partition(".")[0]
    match error:
        case UserError():
            return 2, str(error)
        case _ if client in _BUCKETS or getattr(error, "errno", 0) is None:
            access = "this machine's access (gcloud auth application-default login)"
            return 2, f"bucket: {named}; check its name and {access}"
        case OSError():  # a full disk, a read-only folder
            what = f"{error.filename or 'writing'}: {error.strerror or error}"
            is_full = error.errno in storage.FULL
            remedy = "make room there" if is_full else "name another place"
            return 2, f"{what}; {remedy} and run the same command again"
        case MemoryError():
            advice = "lower the batch size or the size of the data"
            return 2, f"out of memory on this machine: {advice} ({first_line(error)})"
        case RuntimeError() if "RESOURCE_EXHAUSTED" in str(error):  # JAX's
            return 2, (
                "out of memory on the device: raise config.train.micro_batches or "
                "config.mesh.fsdp, lower config.train.batch_size, or set "
                f"config.model.remat=full ({first_line(error)})"
            )
    return None, named
