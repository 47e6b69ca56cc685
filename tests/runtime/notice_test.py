"""The metadata server's word that the machine is taken away is as good as SIGTERM."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from runs import LIMIT, run

from bert_jax.runtime.cluster import preemption as notice
from bert_jax.workdir import metrics

LONG = ["--config.train.num_steps=100000"]


@contextlib.contextmanager
def metadata(preempted):
    """A server that says FALSE at once, and TRUE when `preempted` is set."""
    asked, ended = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Metadata-Flavor"]))
            first = "last_etag=0" in self.path
            while not (first or preempted.wait(0.01) or ended.is_set()):
                pass
            said = b"TRUE" if preempted.is_set() and not first else b"FALSE"
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
        ended.set()
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_a_run_on_a_machine_that_is_taken_away_is_saved(micro, tmp_path, monkeypatch):
    workdir, preempted = tmp_path / "run", threading.Event()

    def take_away():
        end = time.monotonic() + LIMIT
        while not metrics.read(workdir, "train"):
            assert time.monotonic() < end
            time.sleep(0.01)
        preempted.set()

    with metadata(preempted) as (host, asked):
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        threading.Thread(target=take_away, daemon=True).start()
        _, err = run(micro, workdir, *LONG, status=143)
    saved = metrics.read(workdir, "train")[-1]["step"]
    assert f"saved step {saved}" in err
    assert (workdir / "checkpoints" / str(saved)).is_dir()
    assert {flavor for _, flavor in asked} == {"Google"}
    assert [path.partition("last_etag=")[2] for path, _ in asked] == ["0", "e1"]


def test_nobody_is_asked_where_there_is_no_such_server(monkeypatch):
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr(notice.threading, "Thread", None)  # would fail if called
    notice.watch("cpu")
    notice._wait("127.0.0.1:9", False)  # returns: nobody answers there
