"""LangGraph and LangChain on Milepost: a checkpointer, and tools under the outcome protocol. Extra `langgraph`.

Either works without the other. The checkpointer keeps what a graph has finished; that a tool has *begun* is in no
checkpoint, which is why a tool goes through an attached run.
"""

from milepost.adapters.calls import current_call as this_call
from milepost.adapters.langgraph.checkpointer import Checkpointer
from milepost.adapters.langgraph.fencing import StaleWriter
from milepost.adapters.langgraph.outcomes import Halted, Outcomes
from milepost.adapters.langgraph.promises import promised
from milepost.adapters.langgraph.values import UnknownType

__all__ = ["Checkpointer", "Halted", "Outcomes", "StaleWriter", "UnknownType", "promised", "this_call"]
