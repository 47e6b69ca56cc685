"""The names by which clients may call a server."""

import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence

from bert_jax.serving.messages import Refused

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(:[0-9]*)?")


class Names:
    """The names by which a server may be called.

    Args:
      host: the value of --host.
      others: those of `config.serve.hosts`.
    """

    def __init__(self, host: str, others: Sequence[str] = ()):
        self._others = {_plain(name) for name in others}
        self._names = {_plain(host), *self._others}

    def check(self, headers: Mapping[str, str], address: str) -> None:
        """Checks whom a request means, and which page sends it.

        A page of another site reaches a server on localhost through the browser of
        whoever reads it: under its own name, which it has pointed here, or from there.

        Args:
          address: the one to which the client has connected.

        Raises:
          Refused: the Host is no name of this server, or the Origin is another site.
        """
        host = headers.get("host", "")
        name = _name(host)
        if name is None:
            raise Refused(400, "one Host is required, such as localhost:8000")
        here = _plain(address)
        local = here in ("127.0.0.1", "::1") and name == "localhost"
        if not local and name != here and name not in self._names:
            raise Refused(
                421,
                f"Host {host[:100]}: not a name of this server; "
                "--config.serve.hosts=\"('NAME',)\" adds one",
            )
        origin = headers.get("origin")
        if origin is None:
            return
        scheme, _, rest = origin.partition("://")
        same = rest.lower() == host.lower() or _name(rest) in self._others
        if scheme not in ("http", "https") or not same:
            raise Refused(403, f"Origin {origin[:100]}: pages of others may not ask")


def _name(authority: str) -> str | None:
    """The name in NAME:PORT; None if it is none."""
    match = _AUTHORITY.fullmatch(authority)
    return _plain(match[1]) if match else None


@functools.lru_cache(64)  # most clients use the same few
def _plain(name: str) -> str:
    """One spelling of each name or address."""
    name = name.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
