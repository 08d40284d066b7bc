"""Milepost under Pydantic AI: a durability engine, on the framework's public builder API.

Inside `durable(threads, key)` the agent's loop runs as it always does, from its first line; what it asks of the model
and what its tools do go through the attached run. A model's response is recorded before any of its tool calls is made,
so the ids of the calls are the same in every life of the run. A call that has to wait is deferred, the framework's own
way to pause: its siblings finish and are recorded, and the run ends with `DeferredToolRequests`. The same call of the
agent under the same key goes on from the record.

What the framework counts (`UsageLimits`) it counts from the recorded responses, so a limit holds over all lives.
Discovery, validation and event handlers are called as usual: they decide nothing and change nothing outside.
"""

from milepost.adapters.calls import current_call
from milepost.adapters.pydantic_ai.durability import MilepostDurability, durable
from milepost.adapters.pydantic_ai.listing import listed, toolset
from milepost.adapters.threads import Threads

__all__ = ["MilepostDurability", "Threads", "current_call", "durable", "listed", "toolset"]
