"""A slice of the hostile clients, and that the campaign would see what is wrong."""

import pytest

from tests.served import serving
from tests.system import hostile, service

SEED = 5
TURNS = 3  # of each kind


def parsed(row):
    """As a model that fills blanks."""
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError('an object with a string "text" is required')
    if not isinstance(row.get("text_b"), str | None):
        raise ValueError('"text_b" is not a string')
    return row


def test_a_slice_of_the_hostile_clients(caplog, capfd):
    numbers = range(TURNS * len(hostile.KINDS))
    with serving(parse=parsed) as port:
        found = [service.tried(number, SEED, port) for number in numbers]
    assert [each for each in found if isinstance(each, service.Wrong)] == []
    assert found == list(hostile.KINDS) * TURNS
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert capfd.readouterr().err == ""


def test_a_number_is_always_the_same_client():
    for number in range(4 * len(hostile.KINDS)):
        one, two = hostile.draw(number, 1), hostile.draw(number, 1)
        assert one[:2] == two[:2]


@pytest.mark.parametrize("kind", ["bodies", "drips", "right"])
def test_a_wrong_answer_is_seen(kind):
    """Of a server that fails at every row."""

    def fails(rows):
        raise RuntimeError("broken")

    numbers = range(list(hostile.KINDS).index(kind), 30 * len(hostile.KINDS), 11)
    with serving(fails) as port:
        found = [service.tried(number, SEED, port) for number in numbers[:8]]
    assert any("status 500" in each.fault for each in found if each != kind)


def test_a_failure_is_reported_with_its_command():
    wrong = [service.Wrong(7, "bodies", "b'{'", "status 200")]
    text = service.report({"bodies": 9, "hosts": 9}, wrong, 5)
    assert "python -m tests.system.service --only=7 --seed=5" in text
    assert text.endswith("1 failed")
