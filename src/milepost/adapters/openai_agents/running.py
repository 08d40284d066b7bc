"""Running a guarded agent: `Runner.run`, whose pauses and snapshots keep to the record.

A snapshot (`RunState`) is known by the calls that it waits for; one that waits for none by what was said up to it. It
may be resumed as often as it takes, until the run has gone on from it; from then on the newer one counts, and whoever
holds the older one is told so.
"""

from __future__ import annotations

from typing import Any, TypeVar

from agents import Agent, RunConfig, Runner, RunResult, RunState

import milepost as mp
from milepost.adapters.calls import digest_of
from milepost.adapters.openai_agents.guarding import Guard, guards_of
from milepost.adapters.openai_agents.holding import TURN, Attached, Turn, attached
from milepost.adapters.openai_agents.models import recorded
from milepost.adapters.openai_agents.session import DurableSession

T = TypeVar("T")


class SnapshotResumed(mp.MilepostError):
    """The run has gone on from this snapshot before."""

    code = "snapshot_resumed"

    def __init__(self, run_id: str, calls: list[str]) -> None:
        what = f"the snapshot that waits for {', '.join(calls)}" if calls else "this snapshot, which waits for no call"
        super().__init__(
            f"run {run_id} has gone on, or goes on now, from {what}. Resume "
            "the newest one; or run the agent with its first input under the same key, which answers from the record."
        )
        self.run_id = run_id
        self.calls = calls


class CallParked(mp.Parked):
    """A call that was made has to wait."""


async def run(
    agent: Agent[T],
    input: str | list[Any] | RunState[T],
    *,
    run_config: RunConfig | dict[str, Any] | None = None,
    session: Any = None,
    **options: Any,
) -> RunResult:
    """Run a guarded agent: what `Runner.run` takes and returns. Calls that wait are `interruptions` of the result.

    Outside `durable` it is `Runner.run`. Raises InvalidDeclaration for a tool that the app does not list, before a
    model is asked; SnapshotResumed for a state that the run has gone on from; Parked where a question to a model waits,
    or a call that a resumed state says is approved and the record says is not.
    """
    held = attached()
    if held is None:
        return await Runner.run(agent, input, run_config=run_config, session=session, **options)
    guards = guards_of(agent)
    for name in guards:
        held.tool(name)
    config = recorded(run_config)
    try:
        if isinstance(input, RunState):
            await _approved(held, guards, input)
            return await _resumed(held, agent, input, run_config=config, session=session, **options)
        return await _begun(held, agent, input, run_config=config, session=session, **options)
    finally:
        if run_config is None:
            await config.model_provider.aclose()


async def _begun(held: Attached, agent: Agent[T], given: Any, *, session: Any, **options: Any) -> RunResult:
    try:
        return await _turn(held, "begin", agent, given, session=session, **options)
    except CallParked:
        # What came of a call was unclear only once it was made. All is on record by now, and it is an interruption.
        return await _turn(held, "begin", agent, given, session=session, **options)


async def _approved(held: Attached, guards: dict[str, Guard], state: RunState[Any]) -> None:
    """Approve what the record lets go on: the SDK asks nobody again about a call of a snapshot."""
    for call in state.get_interruptions():
        guard = guards.get(call.name or "")
        if guard is not None and await guard.settled(held, str(call.call_id), call.arguments or "{}"):
            state.approve(call)


async def _resumed(held: Attached, agent: Agent[T], state: RunState[T], **options: Any) -> RunResult:
    calls = _calls(state.get_interruptions())
    name = f"snapshot/{digest_of(calls or _said(state))[:16]}"
    if name in held.resuming or await held.kept(name) is not None:
        raise SnapshotResumed(held.run.id, calls)
    held.resuming.add(name)
    try:
        result = await _turn(held, "go_on", agent, state, **options)
        if not calls or _calls(result.interruptions) != calls:
            await held.keep(name, "resumed")
    finally:
        held.resuming.discard(name)
    return result


async def _turn(held: Attached, verb: str, agent: Agent[T], given: Any, *, session: Any, **options: Any) -> RunResult:
    told = session if isinstance(session, DurableSession) else None
    if told is not None:
        await told.turn(verb)
    turn, over = Turn(), False
    token = TURN.set(turn)
    try:
        result = await Runner.run(agent, given, session=session, **options)
        over = not result.interruptions
    except Exception:  # the SDK tells either as an error of its own
        if turn.halted is not None:
            raise turn.halted from None
        if turn.parked is not None:
            raise CallParked(held.run.id, turn.parked.waiting) from None
        raise
    finally:
        TURN.reset(token)
        if not over:
            held.questions.forget(turn.id)
    if told is not None and over:
        await told.turn("end")
    return result


def _calls(interruptions: list[Any]) -> list[str]:
    return sorted(str(one.call_id) for one in interruptions)


def _said(state: RunState[Any]) -> dict[str, Any]:
    """Return what was said up to a snapshot. What the host keeps in its context is no part of it, and may change."""
    told = state.to_json()
    return {name: told.get(name) for name in ("original_input", "pending_input", "model_responses", "generated_items")}
