"""What the hosts have in common: their tools, declared, and the batches that their model asks for, in turn.

`python -m tests.hosts.NAME.host [bare] [session] [WORD …] two:1 three:1` asks for the batch of two, then for that of
three. The number is a part of the ids of the calls: after a crash a model that is asked again makes its calls under
other ids. With `bare` it is the host without Milepost, which `benchmarks/adapters` compares. With `session` it keeps
one of its own on the disk, where it can: that is for one batch, and a process that is started again goes on with it.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from milepost.adapters.foreign import ForeignTool, foreign
from tests.adapters import outside

Batch = list[tuple[str, str, dict[str, Any]]]
BATCHES = {"two": outside.TWO, "three": outside.THREE}
BARE, KEPT = "bare" in sys.argv, "session" in sys.argv


async def go(ask: Callable[[Batch], Awaitable[Sequence[Any]]]) -> None:
    """Ask for each batch, and say what the model was told."""
    said = []
    for word in sys.argv[1:]:
        name, _, life = word.partition(":")
        if life:
            batch = [(id_.replace("call", f"{name}_{life}"), tool, given) for id_, tool, given in BATCHES[name]]
            said.append(await ask(batch))
    outside.say(said)


def declared() -> list[ForeignTool]:
    """Return the host's own functions, declared."""
    return [foreign(name, outside.SCHEMAS[name], **outside.DECLARED[name]) for name in outside.HANDLERS]
