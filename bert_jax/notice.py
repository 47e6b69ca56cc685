"""Google Cloud's notice that a spot or preemptible machine is being taken away."""

import os
import signal
import threading
import time
import urllib.request

_SERVER = "metadata.google.internal"
_PATH = "/computeMetadata/v1/instance/preempted"
_WAIT = 60  # seconds that the server may take to answer that nothing has changed


def watch(platform: str) -> None:
    """From the notice on it is as if SIGTERM had arrived; the machine has 30 seconds.

    The metadata server is asked in a thread, on Cloud TPU and wherever
    GCE_METADATA_HOST names the server; one that does not answer is let be. See
    https://cloud.google.com/compute/docs/instances/create-use-spot.

    Args:
      platform: of the devices, as JAX calls it.
    """
    host = os.environ.get("GCE_METADATA_HOST", _SERVER if platform == "tpu" else "")
    if host:
        threading.Thread(target=_wait, args=(host,), daemon=True).start()


def _wait(host: str) -> None:
    etag, answered = "0", False  # 0: tell me at once
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
        except OSError:  # no such server, or one that is busy
            if not answered:
                return
            time.sleep(5)
