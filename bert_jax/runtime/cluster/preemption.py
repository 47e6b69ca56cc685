"""Google Cloud's notice that a spot or preemptible machine is being taken away."""

import http.client
import os
import signal
import threading
import time
import urllib.request

_SERVER = "metadata.google.internal"
_PATH = "/computeMetadata/v1/instance/preempted"
_WAIT = 60  # seconds that the server may take to answer that nothing has changed


def watch(platform: str) -> None:
    """Sends this process SIGTERM on the notice; the machine then has 30 seconds.

    A thread polls the metadata server, on Cloud TPU and wherever GCE_METADATA_HOST
    names the server; it gives up on one that does not answer. See
    https://cloud.google.com/compute/docs/instances/create-use-spot.

    Args:
      platform: JAX's name for the devices' platform.
    """
    is_tpu = platform == "tpu"
    host = os.environ.get("GCE_METADATA_HOST", _SERVER if is_tpu else "")
    if host:
        threading.Thread(target=_wait, args=(host, is_tpu), daemon=True).start()


def _wait(host: str, answered: bool) -> None:
    """Polls until the notice comes; a server that has never `answered` only once."""
    etag = "0"  # makes the server answer at once
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        url = f"http://{host}{_PATH}?wait_for_change=true&timeout_sec={_WAIT}"
        request = urllib.request.Request(
            f"{url}&last_etag={etag}", headers={"Metadata-Flavor": "Google"}
        )
        try:
            with directly.open(request, timeout=2 * _WAIT) as answer:
                etag, answered = answer.headers.get("ETag", "0"), True
                if answer.read().strip() == b"TRUE":
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
        except (OSError, http.client.HTTPException):  # no such server, or a busy one
            if not answered:
                return
            time.sleep(5)
