"""What the pages show is what happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import LANGUAGES, blocks, pages, typed
from tests.docs.running import Page, fits
from tests.servers.temporal import TemporalServer
from tests.tidy.repository import text

RUNNABLE = [page for page in pages() if any(block.language in {"python", "console"} for block in blocks(page))]


@pytest.fixture
def running(page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page takes for granted: a Temporal server at its address."""
    if page != "docs/temporal.md":
        yield
        return
    server = TemporalServer()
    server.start()
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.target)
    yield
    server.close()


@pytest.mark.parametrize("page", RUNNABLE)
def test_every_program_and_command_of_a_page_does_what_the_page_says(page: str, running: None, tmp_path: Path) -> None:
    Page(tmp_path).run(page)


def test_the_first_example_is_the_program_in_examples_and_is_really_killed() -> None:
    first, *_ = blocks("README.md")
    killed = [command for block in blocks("README.md") if block.language == "console" for command in typed(block)]

    assert (first.language, first.name) == ("python", "first.py")
    assert first.body == text("examples/first.py")
    assert killed[0].kill_once == "ledger.txt"


def test_every_block_says_what_it_is() -> None:
    odd = [f"{page}:{block.line}" for page in pages() for block in blocks(page) if block.language not in LANGUAGES]

    assert odd == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a b", "a   b\n", True),
        ("a … c", "a b b c\n", True),
        ("a … c", "a\nc\n", False),
        ("…\nc", "a\nb\nc\n", True),
        ("a\n…", "a\n", True),
        ("a\n…", "b\na\n", False),
        ("", "", True),
        ("", "a\n", False),
        ("a", "", False),
    ],
)
def test_what_is_printed_is_compared_line_by_line(shown: str, printed: str, *, same: bool) -> None:
    assert fits(shown, printed) is same
