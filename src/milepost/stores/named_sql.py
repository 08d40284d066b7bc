"""Loads `-- name: x` blocks from a `.sql` file that stands beside the code."""

from __future__ import annotations

from importlib.resources import files


def load(package: str, *names: str) -> dict[str, str]:
    """Return the statements of files by name. Raises ValueError for a name that stands twice in all of them."""
    statements: dict[str, str] = {}
    for name in names:
        current = ""
        for line in files(package).joinpath(name).read_text("utf-8").splitlines():
            if line.startswith("-- name: "):
                current = line.removeprefix("-- name: ").strip()
                if current in statements:
                    msg = f"{name} names {current!r} twice"
                    raise ValueError(msg)
                statements[current] = ""
            elif current and not line.startswith("--"):
                statements[current] += line + "\n"
    return {key: text.strip().rstrip(";") for key, text in statements.items()}
