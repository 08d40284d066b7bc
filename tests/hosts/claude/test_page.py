"""docs/claude.md: its program does what the page says."""

from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import query

from tests.hosts.claude.command_line import CommandLine
from tests.hosts.recipes import program


async def test_the_program_of_the_page_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    desk, ran = program("docs/claude.md", "desk", tmp_path), []

    async def own(**given: Any) -> str:
        ran.append(given)
        return "listed"

    async def told(*batch: tuple[str, str, dict[str, Any]]) -> list[tuple[str, bool]]:
        line = CommandLine(batch, {"Bash": own, "Read": own, "Write": own})
        async for _ in query(prompt="go", options=desk.options, transport=line):
            pass
        return line.told

    small, large, shell, read, write = await told(
        ("toolu_1", "mcp__milepost__refund", {"order": "o-1", "cents": 500}),
        ("toolu_2", "mcp__milepost__refund", {"order": "o-2", "cents": 50_000}),
        ("toolu_3", "Bash", {"command": "ls", "description": "list"}),
        ("toolu_4", "Read", {"file_path": "a"}),
        ("toolu_5", "Write", {"file_path": "a"}),
    )
    assert small == ("refunded 500 of o-1", False)
    assert "a person has to approve it first" in large[0]
    assert (shell, read) == (("listed", False), ("listed", False))
    assert write[0].startswith("deny: Write: no such tool is declared")
    assert sorted(ran, key=len) == [{"file_path": "a"}, {"command": "ls", "description": "list"}]

    async with desk.app.client():
        for asked in await desk.app.inspect.approvals():
            await desk.app.approve(asked.id, by="ann")
    large, shell = await told(
        ("toolu_6", "mcp__milepost__refund", {"order": "o-2", "cents": 50_000}),
        ("toolu_7", "Bash", {"command": "ls", "description": "look at the files"}),
    )
    assert large[0].endswith("refunded 50000 of o-2")
    assert shell[0].endswith("Nothing was done now. The result of that call: listed")
    assert len(ran) == 2
