"""Runs a page: saves its files, runs its scripts and commands for real, and compares what they print."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import Block, Typed, blocks, typed
from tests.polling import eventually
from tests.tidy.repository import ROOT

PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
MILEPOST = f'#!/bin/sh\nexec "{sys.executable}" -c "from milepost.cli.main import main; main()" "$@"\n'
ELSEWHERE = "hosts/"  # what tests/hosts runs, in an environment of its own
PATIENCE_S = 60
WIDE = "200"


class Page:
    """One page being run, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "page"
        self.folder.mkdir()
        self.environment = {**os.environ, "PATH": f"{_commands(folder)}:{os.environ['PATH']}", "COLUMNS": WIDE}
        self.environment["PYTHONPATH"] = str(ROOT / "src")
        self.environment["TMPDIR"] = str(folder)
        for made in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # a user who types `make` is not inside another make
            self.environment.pop(made, None)
        self.ran: set[str] = set()

    def run(self, page: str) -> None:
        """Take every block of the page in order; then run what no command has run."""
        mentioned = {word for block in blocks(page) for command in typed_of(block) for word in command.line.split()}
        for block in blocks(page):
            if block.language == "toml":
                (self.folder / block.name).write_text(block.body, encoding="utf-8")
            elif block.language == "python" and not block.name.startswith(ELSEWHERE):
                self._python(block, only_save=block.name in mentioned)
            for command in typed_of(block):
                self._console(block, command)

    def _python(self, block: Block, *, only_save: bool) -> None:
        name = block.name or f"line_{block.line}.py"
        (self.folder / name).write_text(block.body, encoding="utf-8")
        if not only_save:
            done = self._shell(f"python {name}")
            assert done.returncode == 0, f"{block.page}:{block.line}: {done.stdout}{done.stderr}"

    def _console(self, block: Block, command: Typed) -> None:
        line = self._with_run(command.line)
        if line.startswith("make "):  # what it makes has tests of its own, and takes long: here, that it can be made
            planned = self._shell(line.replace("make ", f"make --dry-run --directory '{ROOT}' ", 1))
            assert planned.returncode == 0, f"{block.page}:{block.line}: {line}\n{planned.stderr}"
            return
        done = self._killed(line, command.kill_once) if command.kill_once else self._shell(line).stdout
        shown = "\n".join(command.printed)
        assert fits(shown, done), f"{block.page}:{block.line}: {line}\nprinted\n{done}\nthe page says\n{shown}"

    def _shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _killed(self, line: str, file: str) -> str:
        program = subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=self.folder, env=self.environment)
        try:
            told = self.folder / file
            eventually(lambda: told.exists() and told.read_text(), saying=f"{file} has its line")
            assert program.poll() is None, "it ended before it was killed"
        finally:
            program.kill()
        assert program.wait() == -signal.SIGKILL
        return "Killed"

    def _with_run(self, line: str) -> str:
        if not re.search(r"\bRUN\b", line):
            return line
        store = re.search(r"--store \S+", line)
        assert store is not None, f"{line}: RUN needs a store to be looked up in"
        listed = self._shell(f"milepost runs {store.group()} --json")
        assert listed.returncode == 0, listed.stderr
        return re.sub(r"\bRUN\b", json.loads(listed.stdout)[0]["run"], line)


def typed_of(block: Block) -> list[Typed]:
    """List what is typed in a block; nothing in one that is no console."""
    return typed(block) if block.language == "console" else []


def fits(shown: str, printed: str) -> bool:
    """Say whether output is what a page shows, where `…` stands for anything within a line, or for whole lines."""
    pattern = "".join(_pattern(line) for line in shown.splitlines())
    return re.fullmatch(pattern, "".join(f"{_squeezed(line)}\n" for line in printed.splitlines())) is not None


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:[^\n]*\n)*"
    return r"[^\n]*".join(re.escape(piece) for piece in _squeezed(line).split("…")) + r"\n"


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _commands(folder: Path) -> Path:
    """Make the two commands that pages type: this Python and this milepost, whatever is installed elsewhere."""
    place = folder / "commands"
    place.mkdir()
    for name, script in (("python", PYTHON), ("milepost", MILEPOST)):
        (place / name).write_text(script, encoding="utf-8")
        (place / name).chmod(0o755)
    return place
