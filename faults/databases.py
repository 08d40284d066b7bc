"""PostgreSQL servers for the tries: those that many share, those that one try kills, and the wire to one of those.

A server on a wire lives in a network namespace of its own, reached through a pair of virtual devices: a route into
nowhere on one side takes the packets of one direction away, while those of the other arrive. Nothing is answered then,
and nothing is refused, as when a switch dies.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from faults.strace import ToolMissing
from tests.servers.kept import NotInstalled
from tests.servers.postgres import VERSIONS, Postgres
from tests.servers.temporal import TemporalServer

FAILS = {"fsync": "on", "full_page_writes": "on"}  # as it comes: what is killed shows whether it was durable
OURS, THEIRS = "10.231.{}.1", "10.231.{}.2"

_wires = itertools.count(os.getpid() % 200)


class Databases:
    """The servers of one run of the scoreboard. They end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[int, Postgres] = {}
        self._temporal: TemporalServer | None = None
        self._turn = threading.Lock()

    def shared(self, seed: int) -> Postgres:
        """Return the running server of the version that a seed means, for tries that leave it alone."""
        version = VERSIONS[seed % len(VERSIONS)]
        with self._turn:
            if version not in self._shared:
                self._shared[version] = self._made(version, {})
                self._shared[version].start()
            return self._shared[version]

    def own(self, seed: int, wire: Wire | None = None) -> Postgres:
        """Return a server that a try may kill: started, of the version that its seed means, if wanted on a wire."""
        with self._turn:
            server = self._made(VERSIONS[seed % len(VERSIONS)], FAILS, wire)
        server.start()
        return server

    def _made(self, version: int, settings: Mapping[str, str], wire: Wire | None = None) -> Postgres:
        template = self._folder / f"postgres-{version}"
        try:
            if wire is None:
                return Postgres(version, settings=settings, template=template)
            return Postgres(
                version,
                settings=settings,
                template=template,
                addresses=[wire.theirs],
                trusted=[f"{wire.ours}/32"],
                within=wire.name,
            )
        except NotInstalled as missing:
            raise ToolMissing(str(missing)) from missing

    def temporal(self) -> TemporalServer:
        """Return Temporal's running server, for tries that leave it alone."""
        with self._turn:
            if self._temporal is None:
                self._temporal = self.own_temporal()
            return self._temporal

    def own_temporal(self) -> TemporalServer:
        """Return a server of Temporal's that a try may kill, started."""
        try:
            server = TemporalServer()
        except NotInstalled as missing:
            raise ToolMissing(str(missing)) from missing
        server.start()
        return server

    def close(self) -> None:
        """End them."""
        if self._temporal is not None:
            self._temporal.close()
        for server in self._shared.values():
            server.close()


class Wire:
    """A network namespace, and the wire to it. Raises ToolMissing where this system has none for us."""

    def __init__(self) -> None:
        number = next(_wires) % 250
        self.name = f"mp-{os.getpid()}-{number}"
        self.ours, self.theirs = OURS.format(number), THEIRS.format(number)
        self._device = f"mpw{number}"
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("setpriv") is None:
            raise ToolMissing("a partition needs network namespaces: root, ip (iproute2) and setpriv (util-linux)")
        try:
            ip("netns", "add", self.name)
            ip("link", "add", self._device, "type", "veth", "peer", "name", "wire", "netns", self.name)
            ip("addr", "add", f"{self.ours}/30", "dev", self._device)
            ip("link", "set", self._device, "up")
            self._there("addr", "add", f"{self.theirs}/30", "dev", "wire")
            self._there("link", "set", "wire", "up")
            self._there("link", "set", "lo", "up")
        except subprocess.CalledProcessError as refused:
            self.close()
            raise ToolMissing(f"no network namespace is to be had here: {refused.stderr.strip()}") from refused

    def _there(self, *arguments: str) -> None:
        ip("-n", self.name, *arguments)

    def cut(self, way: str) -> None:
        """Let nothing pass: `answers` from the server, `requests` to it, or `both`."""
        if way in {"answers", "both"}:
            self._there("route", "add", "blackhole", f"{self.ours}/32")
        if way in {"requests", "both"}:
            ip("route", "add", "blackhole", f"{self.theirs}/32")

    def mend(self) -> None:
        """Let everything pass again."""
        for before in (("-n", self.name), ()):
            there = self.ours if before else self.theirs
            subprocess.run(
                ["ip", *before, "route", "del", "blackhole", f"{there}/32"], capture_output=True, check=False
            )

    def close(self) -> None:
        """Take it away."""
        self.mend()
        for gone in (["ip", "link", "del", self._device], ["ip", "netns", "del", self.name]):
            subprocess.run(gone, capture_output=True, check=False)


def ip(*arguments: str) -> None:
    """Change something of the network."""
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
