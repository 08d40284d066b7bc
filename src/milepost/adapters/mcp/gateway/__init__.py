"""The gateway: an MCP server before MCP servers, for agent hosts that are not changed at all.

* `config` reads the file, `callers` says who calls, `downstream` connects to the servers and makes the tools.
* `calls` says which recorded call a request is, `reconciling` asks a server what came of one.
* `answering` says it to the host, `approving` asks the host's user, `serving` speaks MCP.
* `listing` and `command` are what a person sees.
"""
