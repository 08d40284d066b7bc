"""The final answer: the call that gives it, and what is not taken for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from milepost.agents.messages import Reply
from milepost.agents.models import ToolSpec
from milepost.definitions.values import Codec
from milepost.errors import InvalidValue, MilepostError

R = TypeVar("R")

FINAL = "final_result"
CUT_OFF = "length"


class NotTaken(Exception):
    """What the model gave is no final answer; the text says why, for the model."""


class ResultInvalid(MilepostError):
    """The model gave no valid final answer, and was told why as often as the agent allows."""

    code = "result_invalid"

    def __init__(self, why: str, repairs: int) -> None:
        super().__init__(
            f"no valid final answer after {repairs} repairs: {why} Look at the conversation (milepost show RUN), and "
            "make the result's type or the instructions clearer, or allow more with repairs=."
        )
        self.why = why
        self.repairs = repairs


class FinalResult(Generic[R]):
    """The declared result of an agent. Plain text is taken as it is; any other type is given by a call of its own.

    `check` is the user's own condition: it raises ValueError, with the reason, for an answer that is not good enough.
    """

    def __init__(self, kind: type[R], agent: str, check: Callable[[R], None] | None) -> None:
        self._codec: Codec[R] = Codec(kind, f"result of {agent}")
        self._check = check
        self.is_text = kind is str
        schema = self._codec.schema()
        definitions = dict(schema.pop("$defs", {}))
        name = schema.get("$ref", "").rpartition("/")[2]
        root: dict[str, Any] = definitions[name] if name else schema
        self._bare = root.get("type") == "object"
        parameters = (
            dict(root)
            if self._bare
            else {
                "type": "object",
                "properties": {"answer": schema},
                "required": ["answer"],
                "additionalProperties": False,
            }
        )
        if definitions:
            parameters["$defs"] = definitions
        self.spec = None if self.is_text else ToolSpec(FINAL, "Give the final answer, by itself.", parameters)

    def of_reply(self, reply: Reply) -> R:
        """Return the answer that a reply without calls gives. Raises NotTaken."""
        text = reply.text
        if reply.finish == CUT_OFF:
            raise NotTaken("Your answer was cut off, because it was too long.")
        if not text.strip():
            raise NotTaken("You said nothing.")
        if self.is_text:
            return self._checked(self._codec.read(msgspec.json.encode(text)))
        try:
            return self.of_call(text)
        except NotTaken as error:
            raise NotTaken(f"Give the final answer by calling {FINAL}. ({error})") from error

    def of_call(self, arguments: str) -> R:
        """Return the answer that a call gives. Raises NotTaken."""
        try:
            data = arguments.encode()
            if not self._bare:
                data = bytes(msgspec.json.decode(data, type=_Answer).answer)
            return self._checked(self._codec.read(data))
        except InvalidValue as error:
            raise NotTaken(f"This is no valid final answer: {error.why}.") from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise NotTaken(f"This is no valid final answer: {error}.") from error

    def _checked(self, answer: R) -> R:
        if self._check is not None:
            try:
                self._check(answer)
            except ValueError as error:
                raise NotTaken(f"This final answer is not good enough: {error}.") from error
        return answer


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    answer: msgspec.Raw
