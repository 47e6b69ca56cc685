"""`--mode=serve`: answers rows over HTTP, and on a page for a browser.

    POST /predict   a row, or a list of rows, as JSON -> the same with the answers
    GET  /health    {"status": "ok", "task": ...}
    GET  /          the page

Needs the serve extra (starlette and uvicorn).
"""

import asyncio
import json
import logging
import socket
import threading
import time
from pathlib import Path as LocalPath
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime import outside
from bert_jax.runtime.storage import Path
from bert_jax.serving.batching import Batcher
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Predictor, Task
from bert_jax.training import answering

log = logging.getLogger(__name__)

PAGE = LocalPath(__file__).with_name("page.html")
MOST_BYTES = 10_000_000  # of a request
MOST_ROWS = 10_000
_PAUSE = 0.2  # seconds between two looks at whether the server has ended
# Fields of the page's form; a task of one's own has texts.
_FIELDS = {"squad": ("question", "context"), "swag": ("context", "endings")}
_TEXTS = ("text", "text_b")


def serve(task: Task, folder: Path, host: str, port: int) -> None:
    """Serves until a signal ends it.

    Args:
      folder: the work directory with the checkpoint.
      port: 0: any that is free; the address is logged.

    Raises:
      UserError: the serve extra is not installed; the port is taken.
      Interrupted: a signal ended it; requests that had arrived are answered.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise UserError(
            "--mode=serve: needs starlette and uvicorn; pip install '.[serve]'"
        ) from error
    model = answering.of_task(task, folder)
    batcher = Batcher(model.answer, model.size)
    application = app(task, model.predictor, batcher)
    listening = _listening(host, port)
    settings = uvicorn.Config(application, log_config=None, access_log=False)
    server = uvicorn.Server(settings)
    # In a thread, where it sets no handlers: signals end the program as ever.
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    address, own = listening.getsockname()[:2]
    said = False
    try:
        while thread.is_alive():
            if server.started and not said:
                said = True
                log.info("serving on http://%s:%d (stop with Ctrl-C)", address, own)
            time.sleep(_PAUSE)
    finally:
        server.should_exit = True
        thread.join()
        batcher.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise UserError(
            f"--port={port}: cannot be used on {host} ({error.strerror}); name "
            "another, or --port=0 for any that is free"
        ) from error


def app(task: Task, predictor: Predictor, batcher: Batcher) -> Any:
    """The ASGI application."""
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

    name = task.config.task.name
    about = {"task": name, "fields": list(_FIELDS.get(name, _TEXTS))}

    async def predict(request: Any) -> Response:
        try:
            given = await _read(request)
            rows = given if isinstance(given, list) else [given]
            if len(rows) > MOST_ROWS:
                raise UserError(f"{len(rows):,} rows; send at most {MOST_ROWS:,}")
            parsed = await asyncio.to_thread(answering.parsed, predictor, rows)
        except (UserError, ValueError) as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        futures = [asyncio.wrap_future(batcher.submit(one)) for one in parsed]
        answers = await asyncio.gather(*futures)
        found = [
            row_files.answered(row, row_files.rounded(answer))
            for row, answer in zip(rows, answers, strict=True)
        ]
        text = json.dumps(found if isinstance(given, list) else found[0])
        return Response(text, media_type="application/json")

    async def health(_: Any) -> Response:
        return JSONResponse({"status": "ok", **about})

    async def failed(_: Any, error: Exception) -> Response:
        fault = f"{type(error).__name__}: {str(error)[:150]}"
        return JSONResponse({"error": fault}, status_code=500)

    async def page(_: Any) -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    return Starlette(
        routes=[
            Route("/predict", predict, methods=["POST"]),
            Route("/health", health),
            Route("/", page),
        ],
        exception_handlers={Exception: failed},
    )


async def _read(request: Any) -> Any:
    """The JSON of a request.

    Raises:
      UserError: it is too long, or not JSON.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise UserError(
                f"the request has more than {MOST_BYTES:,} bytes; send less"
            )
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"the request is not UTF-8: {error}") from error
    return outside.parse(text, "the request")
