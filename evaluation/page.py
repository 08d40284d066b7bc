"""The table of the tasks that others wrote, as it stands in docs/reliability.md between its own two markers."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from evaluation.verdicts import HEADINGS

PAGE = Path("docs/reliability.md")
BEGIN = "<!-- evaluation: written by `make evaluate ARGS=--write`, not by hand -->"
END = "<!-- end of the evaluation -->"


def of_all(asked: Namespace) -> bool:
    """Whether the command line asks for every task at every point: a part is never published as the whole."""
    return asked.part != "once" and asked.suite is None and asked.task is None and asked.sample is None


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return the table for the page."""
    lines = [HEADINGS, ("---",) + ("---:",) * (len(HEADINGS) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(page: Path, rows: Sequence[Sequence[str]], conclusion: str) -> None:
    """Put the table and its closing sentence between the marks of a page. Raises LookupError where there are none."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"{page} has no marks for the evaluation: {BEGIN} and {END}"
        raise LookupError(msg)
    page.write_text(f"{before}{BEGIN}\n\n{as_markdown(rows)}\n\n**{conclusion}**\n\n{END}{after}", encoding="utf-8")
