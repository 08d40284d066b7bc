"""Claude Agent SDK: hooks that fail closed, and an in-process MCP server whose tools are Milepost's (extra `claude`).

`Guard` is all of it. `guarding` decides on each call before the command line makes it, `serving` offers Milepost's own
tools; both go through the attached run of the session, by `adapters/anew`.
"""

from milepost.adapters.claude.guarding import Guard

__all__ = ["Guard"]
