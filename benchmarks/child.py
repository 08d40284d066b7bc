"""Programs of this folder in processes of their own: what is measured there has a memory and a SQLite of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
"""Where `python -m` finds the programs, wherever the benchmark was started."""

MAIN, BENCH, HOSTS = ".venv", ".venv-bench", ".venv-hosts"
"""The environments of requirements/dev.lock, bench.lock (with LangGraph's own saver) and hosts.lock."""

TIMEOUT = 600


def command(program: str, *arguments: object) -> list[str]:
    """How a program is started; it must be in `ROOT`."""
    return [sys.executable, "-m", program, *map(str, arguments)]


def measured(program: str, *arguments: object) -> Any:
    """Run a program and return the JSON of its last line. Raises RuntimeError, with what it wrote, when it fails."""
    shown = subprocess.run(
        command(program, *arguments), cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT
    )
    if shown.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(map(str, arguments))} failed:\n{shown.stderr[-2000:]}")
    return json.loads(shown.stdout.splitlines()[-1])
