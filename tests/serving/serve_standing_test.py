"""Faults of addresses, and that the server counts them."""

import pytest

from bert_jax.serving.standing import HALVED, Standing
from tests.served import CLIENT, asked, connected, head, request, serving


def test_faults_fade():
    standing = Standing()
    for _ in range(4):
        standing.add("1.2.3.4", 100.0)
    later = [100.0 + halves * HALVED for halves in range(6)]
    faulty = [standing.faulty("1.2.3.4", now) for now in later]
    assert faulty == [True] * 4 + [False] * 2  # 4, 2, 1, a half
    assert not standing.faulty("1.2.3.5", 100.0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.5", False),
    ],
)
def test_a_network_of_ipv6_is_one_client(one, other, same):
    standing = Standing()
    standing.add(one, 0.0)
    assert standing.faulty(other, 0.0) == same


def test_addresses_without_end_are_forgotten():
    standing = Standing()
    for number in range(20_000):
        standing.add(str(number), 0.0)
    assert standing.faulty("19999", 0.0) and not standing.faulty("1", 0.0)


@pytest.mark.parametrize(
    ("raw", "counted"),
    [
        (request({"text": "a"}), 0),
        (request(b"{"), 0),  # a slip, answered
        (b"", 1),
        (head("Content-Length: 9") + b"half", 1),
        (b"junk\r\n\r\n", 1),
        (request({"text": "a"}, "Origin: http://evil"), 1),
    ],
    ids=["right", "no_json", "nothing", "half", "junk", "origin"],
)
def test_what_is_a_fault(monkeypatch, raw, counted):
    added = []
    monkeypatch.setattr(Standing, "add", lambda _, address, now: added.append(address))
    CLIENT.set("127.1.2.3")
    with serving() as port:
        if raw.startswith((b"POST", b"junk")) and b"half" not in raw:
            asked(port, raw)
        else:
            with connected(port) as client:
                client.sendall(raw)
        CLIENT.set("")
        asked(port, head(start="GET /health"))  # the server has accepted it before
    assert added == ["127.1.2.3"] * counted
