"""The pages as the tests see them: their headings, links and fenced blocks.

What a block is, is said by its first line:

    ```python            a script: run where it stands
    ```python shop.py    a file of the page: saved where it stands; run there if no command of the page runs it
    ```python hosts/x.py a file that needs an agent host which is not installed here: tests/hosts runs it
    ```toml policy.toml  a file that is no program: saved where it stands
    ```console           what is typed (`$ …`) and what is printed; run where it stands
    ```text, ```mermaid  to be read

The blocks of a page are taken in order, in one empty folder. In a command `RUN` stands for the id of the newest run of
the store that the command names. In what is printed, `…` stands for anything in a line, and a line `…` for any lines. A
command with `# kill -9 it once FILE has its line` is killed in just that moment.
"""

import re
from dataclasses import dataclass

from tests.tidy.repository import files, text

CONTRACT = {"docs/DESIGN.md", "docs/REQUIREMENTS.md", "docs/FAULTS.md"}
LANGUAGES = {"python", "toml", "console", "text", "mermaid"}
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
COMMAND = re.compile(r"^\$ (?P<line>.*?)(?:\s{2,}# (?P<remark>.*))?$")
KILL = re.compile(r"kill -9 it once (?P<file>\S+) has its line")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file name that may follow it, its text, and the line where it begins."""

    page: str
    line: int
    language: str
    name: str
    body: str


@dataclass(frozen=True)
class Typed:
    """One command of a console block: what is typed, the file whose line is the moment to kill, what is printed."""

    line: str
    kill_once: str
    printed: tuple[str, ...]


def pages() -> list[str]:
    """Name the pages that people read: the README and everything below docs/, except the contract.

    The contract's blocks show shapes and are no programs.
    """
    found = [name for name in files() if name == "README.md" or (name.startswith("docs/") and name.endswith(".md"))]
    return [name for name in found if name not in CONTRACT]


def blocks(page: str) -> list[Block]:
    """List the fenced blocks of a page."""
    source = text(page)
    found = []
    for match in FENCE.finditer(source):
        language, _, name = match["info"].strip().partition(" ")
        found.append(Block(page, source.count("\n", 0, match.start()) + 1, language, name.strip(), match["body"]))
    return found


def typed(block: Block) -> list[Typed]:
    """List the commands of a console block with what they print."""
    commands: list[Typed] = []
    for line in block.body.splitlines():
        match = COMMAND.match(line)
        if match is not None:
            kill = KILL.search(match["remark"] or "")
            commands.append(Typed(match["line"], kill["file"] if kill else "", ()))
        else:
            assert commands, f"{block.page}:{block.line}: a console block begins with what is typed"
            last = commands.pop()
            commands.append(Typed(last.line, last.kill_once, (*last.printed, line)))
    return commands


def prose(page: str) -> str:
    """Return a page with every fenced block blanked."""
    return FENCE.sub(lambda match: "\n" * match.group().count("\n"), text(page))


def headings(page: str) -> list[tuple[int, str]]:
    """List a page's headings as (level, title)."""
    return [(len(marks), title) for marks, title in HEADING.findall(prose(page))]


def anchor(title: str) -> str:
    """Return the anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def table_rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table rows below a heading, without the table's own head."""
    section = text(page).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]
