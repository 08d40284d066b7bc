"""What is shown while a model speaks. Diagnostic: it decides nothing, and may be lost or cut off anywhere.

A piece of text names the step that it belongs to and the attempt that it came from. When a model is asked again (its
worker died in the middle, say), the new attempt *supersedes* what was shown of the one before; the two are never
spliced. `Screen` keeps that rule for whoever shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from milepost.agents.messages import Message, Reply, size_of

KIND = "model"


class Tell:
    """Emits the pieces of one model call, numbered; `step` is its path, such as `turn@3/ask.desk#1`."""

    def __init__(self, emit: Callable[[object], None], step: str, turn: int) -> None:
        self._emit = emit
        self._step = step
        self._turn = turn

    def begin(self, attempt: int) -> Callable[[str], None]:
        """Say that an attempt begins, which supersedes earlier ones; return what tells each piece of its text."""
        number = 0

        def said(text: str) -> None:
            nonlocal number
            number += 1
            self._say(attempt, number, text)

        self._say(attempt, 0, "")
        return said

    def _say(self, attempt: int, number: int, text: str) -> None:
        segment = self._step.partition("/")[0]
        self._emit({
            "of": KIND, "segment": segment, "step": self._step, "turn": self._turn, "attempt": attempt,
            "piece": number, "text": text,
        })  # fmt: skip


class Screen:
    """What a person should see of the models of one run: the latest attempt of each call, and never half of two.

    Feed it what `Handle.events()` yields, in order; `texts` are by step, in the order in which they began.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._attempts: dict[str, int] = {}

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take an event in, if it is a piece of a model's text; say whether it was."""
        piece = event.get("event")
        if not isinstance(piece, Mapping) or piece.get("of") != KIND:
            return False
        step, attempt = piece["step"], piece["attempt"]
        known = self._attempts.get(step, 0)
        if attempt > known or piece["piece"] == 0:
            self._attempts[step] = max(attempt, known)
            if attempt >= known:
                self.texts[step] = ""
        if attempt == self._attempts[step]:
            self.texts[step] += piece["text"]
        return True


def most_in(messages: Sequence[Message]) -> int:
    """Return how many tokens a history may have at most: what the provider counted last, and the bytes since then."""
    for at in range(len(messages) - 1, -1, -1):
        reply = messages[at]
        if isinstance(reply, Reply) and reply.usage.tokens:
            return reply.usage.tokens + size_of(messages[at + 1 :])
    return size_of(messages)
