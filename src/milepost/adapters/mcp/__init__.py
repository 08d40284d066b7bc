"""MCP under Milepost: a client whose calls are recorded steps, and a gateway for hosts that are not changed at all.

* `connection` keeps one connection to a server, and makes it again when it broke.
* `sending` sends one call and says what its answer proves, which is less than one would like.
* `server` makes the tools of one server tools of a run; what the server says of them may only tighten what is declared.
* `gateway` is an MCP server before any number of servers, and `milepost gateway` its command.
"""

from milepost.adapters.mcp.server import Server

__all__ = ["Server"]
