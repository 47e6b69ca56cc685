"""What is exchanged with a Hub: bounds on what it may answer, and its errors."""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError, first_line

# What the client raises at an answer that it does not expect, with two more.
_MISTAKES = (AssertionError, AttributeError, TypeError, ValueError)
PATIENCE = 60.0  # seconds without a byte; the client itself would wait for ever
MOST = 200_000_000  # bytes of lists, and of a file beyond what was announced


class Unreachable(UserError):
    """The Hub cannot be reached, and the cache lacks what is asked."""


class NoRevision(UserError):
    """The repository has no such branch, tag or commit."""


class Exchange:
    """Bounds what a server may answer, which need not be a Hub."""

    announced = 0  # bytes of the files that are downloaded
    _listed = 0

    def client(self) -> Any:
        from huggingface_hub.utils._http import default_client_factory

        client = default_client_factory()
        client.event_hooks["request"].append(_wait_less)
        client.event_hooks["response"].append(self._check)
        return client

    def _check(self, response: Any) -> None:
        read, method = response.iter_bytes, response.request.method
        for header in ("etag", "x-linked-etag"):  # a file's name in the cache
            etag = response.headers.get(header, "x").removeprefix("W/").strip('"')
            if method == "HEAD" and ("/" in etag or etag[:1] == "."):
                raise ValueError(f"a file's ETag is {etag[:80]!a}")
        for header in ("retry-after", "ratelimit"):  # a quarter of an hour and more
            if re.search(r"(^|t=)\d{4}", response.headers.get(header, "")):
                del response.headers[header]

        def bounded(chunk_size: int | None = None) -> Iterator[bytes]:
            listed = chunk_size is None and method != "HEAD"  # and kept in memory
            size, most = (self._listed, MOST) if listed else (0, MOST + self.announced)
            size += 100_000  # so that answers without content end as well
            for part in read(chunk_size):
                size += len(part)
                if size > most:
                    raise ValueError(f"more than {most:,} bytes")
                yield part
            self._listed = size if listed else self._listed

        response.iter_bytes = bounded


def _wait_less(request: Any) -> None:
    for part, seconds in request.extensions["timeout"].items():
        request.extensions["timeout"][part] = seconds or PATIENCE


@contextlib.contextmanager
def explained(name: str) -> Iterator[Exchange]:
    """Turns what the Hub's client raises into a UserError."""
    try:
        import httpx2
        from huggingface_hub import constants, errors, set_client_factory
    except ValueError as error:  # of its variables
        raise UserError(
            f"{name}: {first_line(error)}; check HF_ENDPOINT and the other HF_..."
        ) from error
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # the rest is noise
    # Another server's listing would name the files of the cache.
    constants.HF_HUB_DISABLE_XET |= constants.ENDPOINT != "https://huggingface.co"
    set_client_factory((exchange := Exchange()).client)
    try:
        yield exchange
    except errors.HFValidationError as error:
        raise UserError(f"{name}: {first_line(error)}") from error
    except errors.GatedRepoError as error:
        raise UserError(
            f"{name}: its owner asks for consent first: give it on its page, "
            "then log in (hf auth login)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{name}: the Hub has no such repository, or it is private (hf auth login)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise NoRevision(f"{name}: no such branch, tag or commit") from error
    except errors.LocalEntryNotFoundError as error:
        reason = first_line(error.__cause__ or error)
        raise Unreachable(
            f"{name}: not in the cache, and the Hub ({constants.ENDPOINT}) cannot be "
            f"reached ({reason}); check the network (or HF_HUB_OFFLINE), or name a "
            "folder"
        ) from error
    except (httpx2.HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # a full disk
            raise
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403):
            raise UserError(
                f"{name}: no right to do this; log in with a token that has it (hf "
                "auth login)"
            ) from error
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{name}: {reason}; the same command resumes") from error
    except (LookupError, RecursionError, *_MISTAKES) as error:
        raise UserError(
            f"{name}: what {constants.ENDPOINT} answers is not what a Hub answers "
            f"({type(error).__name__}: {first_line(error)}); check HF_ENDPOINT (and "
            "HF_TOKEN)"
        ) from error
