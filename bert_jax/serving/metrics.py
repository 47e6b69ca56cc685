"""The counts of a server, in the form that Prometheus reads."""

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp


class Metrics:
    """Counts of the requests of one path, and the rows in them.

    Attributes:
      rows: Counter of answered rows.
    """

    def __init__(
        self, path: str, queued: Callable[[], float], cut: Callable[[], float]
    ):
        """Begins at 0.

        Args:
          queued: Function that returns the number of rows that wait.
          cut: Function that returns the number of texts that were too long.
        """
        self._path, self._registry = path, CollectorRegistry()
        shared: dict[str, Any] = {"registry": self._registry}
        self._answers = Counter(
            "bert_requests", f"Answers of {path}", ["status"], **shared
        )
        self._seconds = Histogram("bert_request_seconds", "Time to an answer", **shared)
        self.rows = Counter("bert_rows", "Rows that were answered", **shared)
        Gauge("bert_queued_rows", "Rows that wait", **shared).set_function(queued)
        about = "Texts longer than the model reads, cut or split since the start"
        Gauge("bert_cut_texts", about, **shared).set_function(cut)

    def response(self) -> Response:
        """Returns the answer to /metrics."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def count_responses(self, app: ASGIApp) -> ASGIApp:
        """Returns an application that counts the answers of another, `app`.

        An answer to a client that has left is not sent, and does not count.
        """

        async def call(scope: Any, receive: Any, send: Any) -> None:
            start, is_gone = time.perf_counter(), False

            async def notice() -> Any:
                nonlocal is_gone
                message = await receive()
                is_gone |= message["type"] == "http.disconnect"
                return message

            async def count(message: Any) -> None:
                is_start = message["type"] == "http.response.start" and not is_gone
                if is_start and scope["path"] == self._path:
                    self._answers.labels(message["status"]).inc()
                    self._seconds.observe(time.perf_counter() - start)
                await send(message)

            await app(scope, notice, count)

        return call
