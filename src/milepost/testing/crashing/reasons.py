"""Why something broke: the mistake in a declaration or a segment that most probably shows in this way.

Nothing here decides what is broken. It reads what was seen, and says what a person would look at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.definitions.tools import Tool
from milepost.testing.check import Applied
from milepost.testing.crashing.seen import Seen
from milepost.testing.crashing.worker import Ended

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
RECORD_IT = (
    "A segment is entered again from its first line after a crash. What it reads between its steps must be the same "
    "then: take time, chance and ids from run.now(), run.random() and run.uuid(); read anything else through a tool."
)

BESIDE = (
    "What acts beside the recorded effects is made again after a crash: code between steps, a tool that is declared a "
    "read and changes something, a second effect in another tool. Make it a tool of its own, and declare what it is."
)


def repeated(tool: Tool[..., Any] | None, lines: Sequence[Applied], seen: Seen) -> str:
    """Say why an effect was applied more often than it should have been."""
    if tool is None:
        return f"It is no tool of this workflow, so nothing is recorded of it. {BESIDE}"
    if {"not_sent", "rejected"} & _failed_as(tool, seen):
        return (
            f"{tool.name} said mp.NotSent or mp.Rejected of an attempt that had been applied, so it was made again. "
            "Say so only of what certainly did nothing; let any other error pass, and the outcome is unknown."
        )
    return f"{tool.name} is declared effect={tool.effect!r}, {_broken_promise(tool, lines, seen)}"


def borrowed(name: str) -> str:
    """Say why an effect was applied more often than it should have been that others than its tool apply."""
    return f"Undisturbed, more was applied under the name of {name} than it was called. {BESIDE}"


def _failed_as(tool: Tool[..., Any], seen: Seen) -> set[str]:
    return {reason for name, reason in seen.failures if name == tool.name}


def _broken_promise(tool: Tool[..., Any], lines: Sequence[Applied], seen: Seen) -> str:
    match tool.effect:
        case "read":
            return (
                "which may be called again at any time, and it changed something. Declare what it is: keyed, absolute "
                "or queryable, or leave the effect out, and a person decides."
            )
        case "keyed":
            return _keyed(tool, lines)
        case "absolute":
            return (
                "and doing it twice was not the same as doing it once. Send a precondition that only the first can "
                "meet, such as If-Match, or declare it queryable."
            )
        case "queryable":
            return _queryable(tool, seen)
        case "transactional":
            return "and something else than its transaction was written: keep other I/O out of it."
        case _:
            return (
                "so a person was asked, and the ledger did not show yet what had been sent. Whoever settles it must "
                "look later than the slowest request lands."
            )


def _keyed(tool: Tool[..., Any], lines: Sequence[Applied]) -> str:
    keys = {line.key for line in lines}
    if keys == {""}:
        return "and the provider was given no key. Send call.key as its idempotency key."
    if len(keys) > 1 or "" in keys:
        return (
            "and the provider was given another key, or none, the second time. Send call.key, and nothing else, as it."
        )
    ttl = "" if tool.key_ttl_ms is None else f" for key_ttl={_span(tool.key_ttl_ms)}"
    return (
        f"and the provider applied the same key twice. It does not drop known keys{ttl}, or was not given the key "
        "where it looks for it. Correct key_ttl=, or declare the tool queryable."
    )


def _queryable(tool: Tool[..., Any], seen: Seen) -> str:
    if (tool.name, "did_not_happen") in seen.findings:
        bound = "visible_within" if tool.visible_ms is None else f"visible_within={_span(tool.visible_ms)}"
        return (
            f"its reconciler did not find what had been sent, and {bound} was taken for long enough. Raise it above "
            "the longest that a request may be on its way and its effect may stay invisible. If the reconciler can "
            "miss it for another reason, let it say still_unknown()."
        )
    return "and it was sent twice without being asked about. Does its code send it more than once?"


def missing(tool: Tool[..., Any] | None, name: str, seen: Seen) -> str:
    """Say why an effect was applied less often than in the undisturbed run, though the run ended in the same way."""
    if tool is not None and (name, "happened") in seen.findings:
        return f"The reconciler of {name} said that it had happened: it must look for this very effect."
    if tool is not None and _failed_as(tool, seen):
        return f"{name} failed and was not made again. Is its failure caught, or are its tries too few?"
    return RECORD_IT


def ending(ended: Ended) -> str:
    """Say why a run ended in another way than the undisturbed one."""
    match ended.how, ended.code:
        case "blocked", "diverged":
            return RECORD_IT
        case "blocked", "contradicted":
            return "It was applied although it was settled as not having happened: too early, or by a wrong finding."
        case "worn out", _:
            return (
                "Time passed again and again, and it was never settled. Does a reconciler always fail, or never know?"
            )
        case "waits", _:
            return f"Nobody in a test settles that. {OPTIONS.get(ended.why.partition(':')[0], '')}".rstrip()
        case "failed", _:
            return "A failure that only comes after a crash: does a segment expect what was true before it?"
        case _:
            return "What its process printed is beside the store, in life-*.log."


OPTIONS: Mapping[str, str] = {
    "signal": "Give signals={name: value}.",
    "authority": "Give authority=mp.Authority(…, scopes=…).",
    "budget": "Give budget={unit: amount}.",
    "unknown": "The person found it more than once, or found a result that the undisturbed run never had.",
}

RULES: Mapping[str, str] = {
    "failed": "Its tool said mp.NotSent or mp.Rejected of what had been applied, or its reconciler said rejected.",
    "phantom": "The record says that it happened, the ledger does not. Does its reconciler look for this very effect?",
    "unrecorded": "Something acts outside any recorded step. Make it a tool, or pass call.key on, so that it is known.",
    "not_started": "A call acts that was not begun by its run: does a thread or a task outlive its tool?",
    "altered": "What was sent is not what is recorded: a tool must send its arguments, and nothing that changes.",
}


def rule(name: str) -> str:
    """Say what a violation of `check` probably comes from; nothing where it would be a defect of ours."""
    return RULES.get(name, "This must never be, whatever a workflow does: please report it.")


def undisturbed(ended: Ended) -> str:
    """Say what to do where even the undisturbed run does not come to its end."""
    if ended.how == "waits":
        return f"Nobody in a test settles that. {OPTIONS.get(ended.why.partition(':')[0], '')}".rstrip()
    return "The run must come to an end when nobody disturbs it."


def _span(ms: int) -> str:
    """Return a span as a declaration has it, in the largest unit that fits."""
    for unit, size in UNITS:
        if ms >= size and ms % size == 0:
            return f"'{ms // size}{unit}'"
    return "'0s'"
