"""`--mode=serve`: answers rows over HTTP, and on a page for a browser.

docs/serving.md describes the requests.
"""

import asyncio
import ipaddress
import json
import logging
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path as LocalPath
from typing import Any

from bert_jax.errors import UserError, first_line
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Predictor, Task
from bert_jax.training import inference
from bert_jax.workdir import folder as workdirs

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from bert_jax.serving.batching import Batcher
    from bert_jax.serving.metrics import Metrics
except ModuleNotFoundError as error:
    what = "--mode=serve needs starlette and uvicorn: pip install '.[serve]'"
    raise UserError(what) from error

log = logging.getLogger(__name__)

PAGE = LocalPath(__file__).with_name("page.html")
OPENAPI = PAGE.with_name("openapi.json")
MAX_BYTES = 1_000_000  # per request
MAX_CONNECTIONS = 512
EXAMPLE = {
    "text_b": "",
    "question": "Where did Mary Smith sit?",
    "context": "Mary Smith sat by the river in Paris.",
    "endings": ["She watched the boats.", "She ate the river."],
}


def serve(task: Task, folder: Path, host: str, port: int) -> None:
    """Serves until a signal. The requests in work are answered before.

    Args:
      folder: The work directory with the checkpoint.
      port: 0 means any free port. The address is logged.

    Raises:
      UserError: The port cannot be used. Nothing is loaded then.
    """
    listening = open_port(host, port)
    answerer = inference.restore_answerer(task, folder)
    about = about_model(answerer.predictor, task, folder)
    short = {n: ["a"] * 4 if n == "endings" else "a" for n in about["fields"]}
    batcher = Batcher(answerer, short)
    app = make_application(batcher, about, host, *task.config.serve.hosts)
    # The thread that computes and the one that serves wait for each other dozens of
    # times a batch, by default 5 ms each time.
    sys.setswitchinterval(5e-4)
    form = "[%s]:%d" if ":" in host else "%s:%d"
    log.info(f"serving on http://{form} (Ctrl-C stops)", *listening.getsockname()[:2])
    # On SIGTERM and Ctrl-C, uvicorn ends the server and then raises the signal again.
    http_server(app, task.config.serve.grace_seconds).run([listening])


def open_port(host: str, port: int) -> socket.socket:
    """Opens a port, whose clients wait until they are served, or raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        fix = "name another, or --port=0 for any that is free"
        raise UserError(f"--port={port}: {error}, on --host={host}; {fix}") from error


def http_server(app: ASGIApp, grace_seconds: float) -> uvicorn.Server:
    """Returns a server that ends within `grace_seconds` of a signal."""
    grace: Any = max(0.0, grace_seconds - 0.5)  # the end of the process takes the rest

    async def call(scope: Any, receive: Any, send: Any) -> None:
        async def close(message: Any) -> None:
            if message["type"] == "http.response.start" and server.should_exit:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        is_full = len(server.server_state.connections) > MAX_CONNECTIONS
        scope["state"] = {**scope.get("state", {}), "is_full": is_full}
        await app(scope, receive, close)

    config = uvicorn.Config(
        call,
        log_config=None,
        log_level="critical",  # the application logs its failures itself
        http="h11",  # limits the bytes of headers
        # Types are as declared, and no other site shows the page in a frame.
        headers=[("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")],
        timeout_graceful_shutdown=grace,
    )
    server = uvicorn.Server(config)
    return server


def make_application(
    batcher: Batcher, about: dict[str, Any], host: str, *hosts: str
) -> ASGIApp:
    """Returns the routes.

    Args:
      about: The answer to /health.
      host: The name of this server, in addition to localhost and addresses.
      hosts: More names, whose pages may call it too.
    """
    metrics = Metrics("/predict", lambda: batcher.queued_rows, lambda: batcher.cut)

    async def predict(request: Request) -> Response:
        _check_source(request, host, *hosts)
        content = await _content(request)
        rows = content if isinstance(content, list) else [content]
        answered = asyncio.ensure_future(batcher.answers(rows))
        left = asyncio.ensure_future(request.receive())  # returns if the client leaves
        try:
            await asyncio.wait({answered, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if answered.cancel():  # the client is gone, or the server ends
                raise HTTPException(503, "not answered: the server ends")
        found = answered.result()
        metrics.rows.inc(len(rows))
        return JSONResponse(found if rows is content else found[0])  # refuses NaN

    def get(respond: Callable[[], Response]) -> Any:
        async def endpoint(request: Request) -> Response:
            _check_source(request, host, *hosts)
            return respond()

        return endpoint

    async def answer_http_error(_: Request, error: Any) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def answer_exception(_: Request, error: Exception) -> Response:
        is_model = isinstance(error, UserError)  # its weights give NaN
        log.error("%s", error, exc_info=None if is_model else error)
        text = str(error) if is_model else f"{type(error).__name__}: {str(error)[:150]}"
        return JSONResponse({"error": text}, 500)

    app = Starlette(
        routes=[
            Route("/predict", predict, methods=["POST"], max_body_size=MAX_BYTES),
            Route("/health", get(lambda: JSONResponse(about))),
            Route("/metrics", get(metrics.response)),
            Route("/openapi.json", get(lambda: JSONResponse(openapi(about)))),
            Route("/", get(lambda: HTMLResponse(PAGE.read_bytes()))),
        ],
        exception_handlers={
            HTTPException: answer_http_error,
            Exception: answer_exception,
        },
    )

    full = JSONResponse({"error": "too many connections"}, 503, {"Connection": "close"})

    async def limit_connections(scope: Any, receive: Any, send: Any) -> None:
        is_full = scope.get("state", {}).get("is_full")
        await (full if is_full else app)(scope, receive, send)

    return metrics.count_responses(limit_connections)


def _check_source(request: Request, host: str, *hosts: str) -> None:
    """Raises HTTPException if a page of another site may have sent a request.

    Such a page reaches this machine through the browser of its reader: by its own name,
    which it has pointed here (it cannot move an address), or with its own Origin.
    """
    name, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        ipaddress.ip_address(_strip_address(name))
    except ValueError:
        if _strip_address(name) not in map(_strip_address, ("localhost", host, *hosts)):
            adds = "not this server's name; --config.serve.hosts=\"('NAME',)\" adds it"
            raise HTTPException(421, f"Host {name[:100]}: {adds}") from None
    is_same_origin = origin in (None, f"http://{name}", f"https://{name}")
    if not is_same_origin and _strip_address(str(origin)) not in map(
        _strip_address, hosts
    ):
        adds = (
            "pages of others may not call; --config.serve.hosts=\"('NAME',)\" adds one"
        )
        raise HTTPException(403, f"Origin {origin:.100}: {adds}")


def _strip_address(name: str) -> str:
    """Returns the NAME of NAME:PORT or https://NAME."""
    return re.sub(r"^https?://|:\d*$", "", name).strip("[].").lower()


async def _content(request: Request) -> Any:
    """Returns the JSON of a request."""
    try:
        content = json.loads((await request.body()).decode("utf-8-sig"))
        # NaN and half of a surrogate pair are not JSON, but Python reads them.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError, ClientDisconnect) as error:
        raise HTTPException(400, f"not JSON ({first_line(error)})") from error
    return content


def about_model(predictor: Predictor, task: Task, folder: Path) -> dict[str, Any]:
    """Returns what /health, the page and /openapi.json say of the model.

    `example` is a row of the task, of the run's dev data if its predictions have one.
    """
    name, config = task.config.task.name, task.config
    source = folder if workdirs.has_config(folder) else config.init_from
    words = task.tokenizer.get_vocab() if name == "pretraining" else {}
    word = next((m for m in ("[MASK]", "<mask>") if m in words), "river")
    example = EXAMPLE | {"text": f"Mary Smith sat by the {word} in Paris."}
    predictions = folder / "predictions" / "dev.jsonl"
    if predictions.exists():
        with predictions.open(encoding="utf-8") as lines:
            first = dict(json.loads(next(lines, "{}")))
        example |= {name: x for name, x in first.items() if x}
    return {
        "status": "ok",
        "task": name,
        "model": str(source).rstrip("/").rpartition("/")[2],  # shows no local folder
        "fields": list(predictor.row_fields),
        "labels": list(predictor.labels),
        "example": {field: example.get(field, "") for field in predictor.row_fields},
    }


def openapi(about: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of the requests that OpenAPI's tools read."""
    document = json.loads(OPENAPI.read_bytes())
    text = {"type": "string"}
    types: dict[str, Any] = dict.fromkeys(about["fields"], text)
    if "endings" in types:
        types["endings"] = {"type": "array", "items": text}
    document["components"]["schemas"]["row"] |= {
        "properties": types,
        "required": [name for name in types if name != "text_b"],
        "example": about["example"],
    }
    document["info"]["title"] = about["model"]
    return document
