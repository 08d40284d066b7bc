"""Messages are data: what is no message is refused in one way, whatever is wrong with it."""

from decimal import Decimal

import msgspec
import pytest

from milepost.core import messages as m

MESSAGES: list[m.AnyMessage] = [
    m.Send(at=1, by="ann", id="s1", name="go", value=msgspec.Raw(b'{"a":[1]}')),
    m.Cancel(at=1, why="x"),
    m.Grant(at=1, scopes=("a",), budget={"usd": Decimal("1.50")}, why="ok"),
    m.Revoke(at=1, by="ann", scopes=("a",), ceilings={"usd": Decimal(5)}, why="too much"),
    m.Answer(at=1, approval="ap-1", approved=False, why="no"),
    m.Resolve(at=1, path="pay/charge#1", answer="happened", why="saw it", value=msgspec.Raw(b'"r"')),
    m.Evidence(at=1, visit=2, step=":0", path="p", attempt=3, saw="returned", value=msgspec.Raw(b"7"), why="late"),
    m.Child(at=1, child="c1", status="done", result=msgspec.Raw(b"1")),
    m.Retry(at=1, why="mended"),
    m.Recheck(at=1, by="worker-1"),
    m.Resume(at=1, by="ann", why="compatible now"),
    m.Rewind(at=1, by="ann", to=2, why="the wrong customer"),
]


def test_every_kind_of_message_is_tried_here() -> None:
    assert {type(message) for message in MESSAGES} == set(m.Message.__subclasses__())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_back_as_it_was_sent(message: m.AnyMessage) -> None:
    assert m.decode(m.encode(message)) == message


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b'{"message":"send.1"}', b'{"message":"send.2","at":1,"id":"s","name":"n","value":1}',
        b'{"message":"cancel.1","at":"now","why":"x"}', b'{"message":"cancel.1","at":1,"why":"\xff"}',
        b'{"message":"cancel.1","at":1,"why":"\\ud800"}',
        b'{"message":"send.1","at":1,"id":"s","name":"n","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["nothing", "no tag", "a list", "fields missing", "newer", "wrong type", "no UTF-8", "lone surrogate", "deep"],
)  # fmt: skip
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        m.decode(body)
