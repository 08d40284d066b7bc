"""What tests of policies share: a policy file, a tool that a policy may stop, and what it sent."""

from pathlib import Path
from typing import Any

import milepost as mp

ALLOW = "all; allow"
NEVER = 'never; deny; tool = "mail"; why = "no mail today"'


class Outside:
    def __init__(self) -> None:
        self.sent: list[str] = []


class File:
    """The policy file of a test: written as a person would replace it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0

    def says(self, *rules: str) -> str:
        """Hold these rules from now on: `NAME VERDICT KEYS…`, one a text."""
        self.version += 1
        tables = []
        for rule in rules:
            name, verdict, *keys = rule.split("; ")
            tables.append("\n".join(["[[rule]]", f'name = "{name}"', f'verdict = "{verdict}"', *keys]))
        return self.holds("\n".join([f'version = "{self.version}"', *tables]))

    def holds(self, text: str) -> str:
        beside = self.path.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.path)
        return str(self.path)


def mailing(outside: Outside, **options: Any) -> mp.Tool[[str], str]:
    async def mail(call: mp.Call, to: str) -> str:
        outside.sent.append(to)
        if to == "flaky" and call.attempt == 1:
            raise mp.NotSent("no route")
        return f"sent {to}"

    return mp.tool(name="mail", **options)(mail)


def one_call(tool: mp.Tool[[str], str]) -> mp.Workflow[str, str]:
    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> str:
        try:
            return await tool(to)
        except mp.Denied as denied:
            return f"denied: {denied.why}"

    return flow


async def fields(app: mp.App, run_id: str, name: str) -> list[dict[str, Any]]:
    return [line.fields for line in await app.inspect.journal(run_id) if line.name == name]
