"""The pages as the tests see them: their headings, links and fenced blocks.

What a block is, is said by its first line:

    ```python            a script: run in the folder of its page, must end well
    ```python shop.py    the same, saved under that name first, so that later blocks can import it
    ```console           what is typed (lines that begin with `$ `) and what is printed; run in the same folder
    ```text, ```mermaid  to be read; what they show is checked by a test of its own, or is an illustration

The blocks of a page run in order, in one empty folder.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.tidy.repository import ROOT, files, text

CONTRACT = {"docs/DESIGN.md", "docs/REQUIREMENTS.md", "docs/FAULTS.md"}
LANGUAGES = {"python", "console", "text", "mermaid"}
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file name that may follow it, its text, and the line where it begins."""

    page: str
    line: int
    language: str
    name: str
    body: str


def pages() -> list[str]:
    """Name the pages that people read: the README and everything below docs/."""
    return [name for name in files() if name == "README.md" or (name.startswith("docs/") and name.endswith(".md"))]


def own_pages() -> list[str]:
    """Name the pages except the contract, whose blocks show shapes and are not programs."""
    return [name for name in pages() if name not in CONTRACT]


def blocks(page: str) -> list[Block]:
    """List the fenced blocks of a page."""
    source = text(page)
    found = []
    for match in FENCE.finditer(source):
        language, _, name = match["info"].strip().partition(" ")
        found.append(Block(page, source.count("\n", 0, match.start()) + 1, language, name.strip(), match["body"]))
    return found


def without_blocks(page: str) -> str:
    """Return a page's prose, with every fenced block blanked."""
    return FENCE.sub(lambda match: "\n" * match.group().count("\n"), text(page))


def headings(page: str) -> list[tuple[int, str]]:
    """List a page's headings as (level, title)."""
    return [(len(marks), title) for marks, title in HEADING.findall(without_blocks(page))]


def anchor(title: str) -> str:
    """Return the anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def absolute(page: str, link: str) -> Path:
    """Return the file that a relative link of a page names."""
    return ((ROOT / page).parent / link).resolve()
