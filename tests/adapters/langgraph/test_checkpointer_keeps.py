"""What the checkpointer has saved: after a reopening, byte for byte, once, and nothing that could not be read back."""

import dataclasses
import datetime as dt
import enum
import uuid
from collections import OrderedDict, deque
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.func import entrypoint, task
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt
from pydantic import BaseModel

from milepost.adapters.langgraph import Checkpointer, UnknownType
from milepost.adapters.langgraph.checkpointer import PACKAGE
from milepost.adapters.langgraph.values import Values
from milepost.errors import Damaged, InvalidDeclaration
from milepost.opening import open_store, open_tables
from milepost.stores import encryption
from milepost.stores.api import Emit
from milepost.stores.encryption import KeyMissing
from milepost.stores.tables import PlainRefused
from tests.adapters.langgraph.graphs import checkpoint, line, place, thread

CROWN = "\N{CROWN}"
HARD = ["zażółć", "日本", f"{CROWN}\0\x1f", "e\N{COMBINING ACUTE ACCENT}", "\N{LINE SEPARATOR}", "'; DROP TABLE x; --"]


class Order(BaseModel):
    number: int
    lines: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = "r"


class Pair(NamedTuple):
    left: int
    right: int


class Stranger:
    pass


def put(saver: Checkpointer, name: str, value: Any, parent: str | None = None) -> str:
    kept = checkpoint(value=value)
    saver.put(place(name, parent), kept, {"source": "loop", "step": 0}, {"value": 1})
    return kept["id"]


def value_of(saver: Checkpointer, name: str) -> Any:
    found = saver.get_tuple(place(name))
    assert found is not None
    return found.checkpoint["channel_values"]["value"]


def test_what_was_saved_is_there_when_it_is_opened_again(store: str) -> None:
    with Checkpointer(store) as first:
        id_ = put(first, "t", [1, 2])
        first.put_writes(place("t", id_), [("a", 1), ("b", 2)], "task-2", "~2")
        first.put_writes(place("t", id_), [("a", 3)], "task-1", "~3")

    with Checkpointer(store) as again:
        found = again.get_tuple(place("t"))

    assert found is not None
    assert found.checkpoint["id"] == id_
    assert found.pending_writes == [("task-2", "a", 1), ("task-2", "b", 2), ("task-1", "a", 3)]
    assert found.metadata["step"] == 0


def test_text_of_every_kind_comes_back_as_it_was(store: str) -> None:
    with Checkpointer(store) as saver:
        for position, text in enumerate(HARD):
            put(saver, f"thread {position}", {text: [text]})
            named = text.replace("\0", "")
            put(saver, named, text)

            assert value_of(saver, f"thread {position}") == {text: [text]}
            assert value_of(saver, named) == text


def test_a_list_that_grows_is_stored_once_and_not_with_every_checkpoint(store: str) -> None:
    steps, size = 100, 1_000
    with Checkpointer(store) as saver:
        notes: list[str] = []
        parent = None
        for step in range(steps):
            notes.append(f"{step:04}" * (size // 4))
            parent = put(saver, "t", notes, parent)
        tables = open_tables(store, PACKAGE)
        stored = tables.look(
            lambda rows: [rows.run("chunks", "t", f'["{n}"]')[0][1] for (n,) in rows.run("names", "t")]
        )
        tables.close()

        assert value_of(saver, "t") == notes
    stored_bytes = sum(map(len, stored))
    assert steps * size <= stored_bytes < 3 * steps * size  # stored with each of them, it were fifty times that


def test_plain_values_messages_and_what_langgraph_notes_come_back_as_what_they_were() -> None:
    values = Values()
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    kept: list[Any] = [
        None, True, 1, -(2**70), 1.5, "x", b"\0\xff", bytearray(b"x"), [1, [2]],
        {"a": {"$": 1}}, {1: "a", (2, 3): None},
        (1, (2,)), {1, 2}, frozenset({"x"}), deque([1, 2], 5), moment, moment.date(), moment.timetz(),
        dt.timedelta(days=-1, microseconds=3), uuid.UUID(int=7), Decimal("1.10"), 1j,
        HumanMessage("hi", id="1"), ToolMessage("ok", tool_call_id="c", artifact={"raw": (1, 2)}),
        AIMessage([{"type": "text", "text": "x"}], tool_calls=[{"name": "pay", "args": {"n": 1}, "id": "c"}]),
        Send("node", {"x": (1,)}), Interrupt({"ask": "?"}, "id"), Command(resume={"a": 1}), Overwrite([1]),
    ]  # fmt: skip

    back = [values.read(values.write(value)) for value in kept]

    assert back == kept
    assert list(map(type, back)) == list(map(type, kept))
    assert str(values.read(values.write(float("nan")))) == "nan"
    assert values.read(values.write(OrderedDict(a=1))) == {"a": 1}
    assert values.read(values.write(ValueError("no"))) == "ValueError('no')"
    assert values.loads_typed(values.dumps_typed([1])) == [1]


def test_classes_that_were_declared_come_back_as_what_they_were(store: str) -> None:
    kept = [Order(number=1, lines=["a"]), Point(1), Colour.RED, Pair(1, 2)]
    with Checkpointer(store, types=[Order, Point, Colour, Pair]) as saver:
        put(saver, "t", kept)

    with Checkpointer(store, types={"Order": Order, "Point": Point, "Colour": Colour, "Pair": Pair}) as again:
        assert value_of(again, "t") == kept


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"deep": [0, Stranger()]}, r"channel_values.value.deep\[1\] is a Stranger"),
        (Order(number=1), "channel_values.value is a Order"),
        ([Point(1)], r"channel_values.value\[0\] is a Point"),
        (lambda: 1, "channel_values.value is a function"),
        (ToolMessage("x", tool_call_id="c", artifact=Stranger()), "channel_values.value.artifact is a Stranger"),
        ("\ud800", "half a character"),
    ],
)
def test_a_value_that_could_not_be_read_back_is_refused_when_it_is_saved(
    tmp_path: Path, value: Any, where: str
) -> None:
    with Checkpointer(f"sqlite:///{tmp_path / 'store.db'}") as saver:
        with pytest.raises(UnknownType, match=where):
            put(saver, "t", value)
        with pytest.raises(UnknownType):
            saver.put_writes(place("t", "1"), [("a", value)], "task")

        assert saver.get_tuple(place("t")) is None


def test_a_declared_value_that_its_class_would_not_take_again_is_refused_when_it_is_saved() -> None:
    broken = Order.model_construct(number="not a number")

    with pytest.raises(UnknownType, match="cannot be made again"):
        Values([Order]).write(broken)


def test_a_kind_that_nobody_declared_is_refused_when_it_is_read(store: str) -> None:
    with Checkpointer(store, types=[Order]) as saver:
        put(saver, "t", Order(number=1))

    with Checkpointer(store) as again, pytest.raises(UnknownType, match="no class of this name is declared") as refused:
        again.get_tuple(place("t"))
    assert refused.value.kind == "Order"


@pytest.mark.parametrize("stored", [b"{", b'{"$":"os.system","v":["true"]}', b'{"$":"HumanMessage","v":{"content":7}}'])
def test_bytes_that_are_no_value_of_ours_are_refused(stored: bytes) -> None:
    with pytest.raises(UnknownType):
        Values().read(stored)
    with pytest.raises(UnknownType, match="another serializer"):
        Values().loads_typed(("pickle", stored))


@pytest.mark.parametrize("types", [[Stranger], [Order, Order], {"HumanMessage": Order}])
def test_a_declaration_that_could_not_hold_is_refused(types: Any) -> None:
    with pytest.raises(InvalidDeclaration):
        Values(types)


def test_a_chunk_that_was_changed_or_is_gone_is_said_to_be_damaged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Checkpointer(url) as saver:
        put(saver, "t", "a value")
        tables = open_tables(url, PACKAGE)
        ((name,),) = tables.look(lambda rows: rows.run("names", "t"))
        tables.do(lambda rows: rows.run("delete_chunk", "t", name))
        with pytest.raises(Damaged, match="is missing"):
            saver.get_tuple(place("t"))
        tables.do(lambda rows: rows.run("put_chunk", "t", name, b'["v",{}]'))
        with pytest.raises(Damaged, match="is not what it was"):
            saver.get_tuple(place("t"))
        tables.close()


def test_in_an_encrypted_store_values_are_hidden_and_nothing_plain_is_written(store: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    encryption.write(keys, "k1", rotate=False)
    with Checkpointer(store) as plain:
        put(plain, "before", "known before")
        opened = open_store(store, encryption=keys)
        opened.commit_now([Emit([])], must=True)
        opened.close()
        with pytest.raises(PlainRefused):
            put(plain, "t", "hidden words")

        with Checkpointer(store, encryption=keys) as hiding:
            put(hiding, "t", ["hidden words"] * 2_000)
            hiding.copy_thread("t", "copy")
            hiding.prune(["t"])

            assert value_of(hiding, "before") == "known before"
            assert value_of(hiding, "t") == value_of(hiding, "copy") == ["hidden words"] * 2_000
        with pytest.raises(KeyMissing):
            plain.get_tuple(place("t"))
    tables = open_tables(store, PACKAGE, encryption=keys)
    bodies = tables.look(lambda rows: [rows.run("chunks", "t", f'["{n}"]')[0][1] for (n,) in rows.run("names", "t")])
    tables.close()
    assert len(bodies) > 1
    assert not any(b"hidden" in bytes(body) for body in bodies)


def test_pruning_and_deleting_leave_no_value_that_nothing_refers_to(store: str) -> None:
    with Checkpointer(store) as saver:
        parent = None
        for step in range(5):
            parent = put(saver, "t", [f"{step}" * 3_000, "the same" * 500], parent)
        tables = open_tables(store, PACKAGE)
        before = len(tables.look(lambda rows: rows.run("names", "t")))
        saver.prune(["t"])
        after = len(tables.look(lambda rows: rows.run("names", "t")))

        assert value_of(saver, "t") == ["4" * 3_000, "the same" * 500]
        assert len(list(saver.list(place("t")))) == 1
        assert after < before / 2
        saver.delete_thread("t")
        assert tables.look(lambda rows: rows.run("names", "t")) == []
        tables.close()


def test_a_copy_has_every_value_and_goes_its_own_way(store: str) -> None:
    def more(state: Any) -> Any:
        return {"notes": ["more"]}

    with Checkpointer(store) as saver:
        graph = line(more).compile(checkpointer=saver)
        graph.invoke({"notes": ["begin"]}, thread("t"))
        saver.copy_thread("t", "copy")
        graph.invoke({"notes": ["again"]}, thread("copy"))

        assert graph.get_state(thread("t")).values == {"notes": ["begin", "more"]}
        assert graph.get_state(thread("copy")).values == {"notes": ["begin", "more", "again", "more"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_is_gone_on_with_however_durably_it_was_saved(tmp_path: Path, durability: Any) -> None:
    def ask(_: Any) -> Any:
        return {"notes": [interrupt("?")]}

    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Checkpointer(url) as saver:
        line(ask).compile(checkpointer=saver).invoke({"notes": ["a"]}, thread("t"), durability=durability)
    with Checkpointer(url) as again:
        said = line(ask).compile(checkpointer=again).invoke(Command(resume="b"), thread("t"), durability=durability)

    assert said["notes"] == ["a", "b"]


def test_a_workflow_of_tasks_is_gone_on_with(tmp_path: Path) -> None:
    done: list[int] = []

    @task
    def double(number: int) -> int:
        done.append(number)
        return 2 * number

    def flow(saver: Checkpointer) -> Any:
        @entrypoint(checkpointer=saver)
        def doubled(number: int) -> Any:
            found = double(number).result()
            return found + interrupt("?")

        return doubled

    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Checkpointer(url) as saver:
        flow(saver).invoke(2, thread("t"))
    with Checkpointer(url) as again:
        assert flow(again).invoke(Command(resume=1), thread("t")) == 5
    assert done == [2]
