"""The metadata server's word that the machine is taken away is as good as SIGTERM."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bert_jax import metrics, notice

ROOT = Path(__file__).resolve().parent.parent
LONG = ["--config.train.num_steps=100000"]


@contextlib.contextmanager
def metadata(preempted):
    """A server that says FALSE at once, and TRUE when `preempted` is set."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Metadata-Flavor"]))
            first = "last_etag=0" in self.path
            said = b"FALSE" if first or not preempted.wait(300) else b"TRUE"
            self.send_response(200)
            self.send_header("ETag", "e1" if first else "e2")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        preempted.set()
        server.shutdown()
        server.server_close()


def test_a_run_on_a_machine_that_is_taken_away_is_saved(micro, tmp_path):
    flags = os.environ["XLA_FLAGS"].replace("count=8", "count=1")
    workdir, preempted = tmp_path / "run", threading.Event()
    with metadata(preempted) as (host, asked):
        arguments = [f"--config={micro}", f"--workdir={workdir}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "bert_jax.main", *arguments, *LONG],
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": flags, "GCE_METADATA_HOST": host},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            end = time.monotonic() + 120
            while not metrics.read(workdir, "train"):
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            preempted.set()
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 143, err
    saved = metrics.read(workdir, "train")[-1]["step"]
    assert f"saved step {saved}" in err
    assert (workdir / "checkpoints" / str(saved)).is_dir()
    assert {flavor for _, flavor in asked} == {"Google"}
    assert [path.partition("last_etag=")[2] for path, _ in asked] == ["0", "e1"]


def test_nobody_is_asked_where_there_is_no_such_server(monkeypatch):
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    before = threading.active_count()
    notice.watch("cpu")
    assert threading.active_count() == before
    notice._wait("127.0.0.1:9", False)  # returns: nobody answers there
