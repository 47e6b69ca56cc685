"""Who has lately left requests without their answers, or sent what is no request."""

import ipaddress

HALVED = 10.0  # seconds in which half of an address's faults are forgotten
_MOST = 10_000  # addresses; who had a fault longest ago is forgotten first


class Standing:
    """Counts addresses' faults, which fade."""

    def __init__(self) -> None:
        self._faults: dict[str, tuple[float, float]] = {}  # how many, when

    def add(self, address: str, now: float) -> None:
        """Counts a fault.

        Args:
          now: in seconds.
        """
        place = _place(address)
        count = 1.0 + self._left(place, now)
        self._faults.pop(place, None)
        self._faults[place] = count, now
        if len(self._faults) > _MOST:
            del self._faults[next(iter(self._faults))]

    def faulty(self, address: str, now: float) -> bool:
        """Whether an address has a fault, or half of one, that is not forgotten."""
        return self._left(_place(address), now) >= 0.5

    def _left(self, place: str, now: float) -> float:
        count, then = self._faults.get(place, (0.0, now))
        return count * 0.5 ** ((now - then) / HALVED)


def _place(address: str) -> str:
    """An address of IPv4, or of IPv6 the network of 64 bits that one site has."""
    if ":" not in address or "." in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
