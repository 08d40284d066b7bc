"""`milepost gateway`: an MCP server before other MCP servers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import click

from milepost.adapters.mcp.gateway.callers import stdio_caller
from milepost.adapters.mcp.gateway.config import Config, read
from milepost.adapters.mcp.gateway.downstream import connect, required
from milepost.adapters.mcp.gateway.listing import facts, lines
from milepost.adapters.mcp.gateway.serving import Gateway, over_http, over_stdio


@click.command()
@click.option(
    "--config", "file", metavar="FILE", type=click.Path(path_type=Path), default=Path("servers.toml"),
    show_default=True, help="The servers, what their tools promise, and who may use them.",
)  # fmt: skip
@click.option("--http", is_flag=True, help="Serve streamable HTTP, at [http] of the file. Else stdin and stdout.")
@click.option("--port", metavar="N", type=click.IntRange(0, 65_535), help="Another port; 0 takes any free one.")
@click.option("--caller", metavar="NAME", help="Which caller of the file the host on stdin is.")
@click.option("--list", "listing", is_flag=True, help="Show what each server offers and what is wrong; serve nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print JSON.")
@click.pass_context
def gateway(
    context: click.Context,
    *,
    file: Path,
    http: bool,
    port: int | None,
    caller: str | None,
    listing: bool,
    as_json: bool,
) -> None:
    """Stand before MCP servers, so that no effect of an agent host is repeated.

    Any host that speaks MCP is served the tools that the file declares, over stdin and stdout, or over HTTP. Each call
    is recorded, checked against scopes, policy, approvals and budgets, and answered from the record if it is repeated.

    Exit status: 2 where the file, or what a server offers, does not fit; 1 where --list finds something wrong.
    """
    config = read(file)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    if listing:
        if not asyncio.run(_list(config, as_json=as_json)):
            context.exit(1)
        return
    asyncio.run(_serve(config, http=http, port=port, caller=caller))


async def _list(config: Config, *, as_json: bool) -> bool:
    found = await connect(config)
    try:
        told = facts(config, found)
    finally:
        await found.close()
    click.echo(json.dumps(told, indent=2) if as_json else "\n".join(lines(told)))
    return not found.problems


async def _serve(config: Config, *, http: bool, port: int | None, caller: str | None) -> None:
    stdio = None if http else stdio_caller(config, caller)
    downstream = await required(config)
    try:
        served = Gateway(config, downstream, stdio)
        if http:
            await over_http(served, config.host, config.port if port is None else port, _listening)
        else:
            await over_stdio(served)
    finally:
        await downstream.close()


def _listening(address: str) -> None:
    click.echo(f"listening on {address}", err=True)
