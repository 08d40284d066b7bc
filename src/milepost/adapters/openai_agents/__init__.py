"""Milepost under the OpenAI Agents SDK.

Inside `durable(threads, key)` a guarded agent's loop runs as it always does, from its first line; what it asks of its
models and what its tools do go through the attached run. A response is recorded before any of its tool calls is made,
so the ids of the calls are the same in every life of the run.

A call that has to wait is an interruption, the SDK's own way to pause: `needs_approval` looks at the record before the
call begins. Where it turns out only in the middle of a call that nobody knows what came of it, that call waits until
its siblings are over and then unwinds the run, which begins again from the record, and now pauses.

What the SDK counts (turns, tokens) it counts from the recorded responses, so a limit holds over all lives.
"""

from milepost.adapters.calls import current_call
from milepost.adapters.openai_agents.guarding import guarded, listed, tools_of
from milepost.adapters.openai_agents.holding import Attached, durable
from milepost.adapters.openai_agents.models import RecordedModel, RecordedProvider, recorded
from milepost.adapters.openai_agents.running import SnapshotResumed, run
from milepost.adapters.openai_agents.session import DurableSession
from milepost.adapters.threads import Threads

__all__ = [
    "Attached",
    "DurableSession",
    "RecordedModel",
    "RecordedProvider",
    "SnapshotResumed",
    "Threads",
    "current_call",
    "durable",
    "guarded",
    "listed",
    "recorded",
    "run",
    "tools_of",
]
