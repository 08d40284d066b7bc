"""A host without a framework, for the scenario of `outside`: what every adapter does, with nothing around it.

`python -m tests.adapters.plain_host two|three tools|foreign|sync`
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import milepost as mp
from milepost.adapters.foreign import Send, foreign
from milepost.adapters.saying import to_model
from milepost.adapters.threads import Threads
from tests.adapters import outside

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]
FORM = sys.argv[2]
TOOLS: dict[str, mp.Tool[..., Any]] = (
    outside.TOOLS
    if FORM == "tools"
    else {name: foreign(name, outside.SCHEMAS[name], **outside.DECLARED[name]) for name in outside.HANDLERS}
)
THREADS = Threads(outside.app(list(TOOLS.values())))


def send_of(name: str) -> Send | None:
    """Return the host's own handler of a call."""
    if FORM == "tools":
        return None
    handlers: dict[str, Callable[..., Any]] = dict(outside.HANDLERS if FORM == "foreign" else outside.HANDLERS_SYNC)
    handler = handlers[name]

    async def awaited(call: mp.Call, arguments: dict[str, Any]) -> Any:
        return await handler(**arguments)

    def blocking(call: mp.Call, arguments: dict[str, Any]) -> Any:
        return handler(**arguments)

    return awaited if FORM == "foreign" else blocking


async def attempt(id_: str, name: str, arguments: dict[str, Any]) -> str:
    """Make one call of the batch, and say to the model what came of it."""
    outcome = await THREADS.attempt("thread-7", id_, TOOLS[name], arguments, send=send_of(name))
    return str(outcome.value) if isinstance(outcome, mp.Confirmed) else to_model(outcome, name)


async def together() -> list[str]:
    """Make the whole batch at once."""
    return await asyncio.gather(*(attempt(*call) for call in BATCH))


def main() -> None:
    """Call the model, which always says the same, and do what it asks for."""
    outside.model()
    if FORM == "sync":
        with ThreadPoolExecutor(len(BATCH)) as pool:
            said = list(pool.map(lambda call: THREADS.sync(lambda: attempt(*call)), BATCH))
    else:
        said = asyncio.run(together())
    outside.say(said)


if __name__ == "__main__":
    main()
