"""What a worker answers to those who watch it from outside: /live, /ready and /metrics, on one port.

They are answered by the event loop that drives the runs: where that hangs, nothing is answered, and that is what a
liveness probe is to find. Readiness ends before draining begins. /metrics needs the extra `metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.errors import ExtraMissing
from milepost.runtime import gauges

if TYPE_CHECKING:
    from milepost.runtime.gauges import Gauges
    from milepost.runtime.worker import Worker

REQUEST_S = 5.0
TEXT = "text/plain; charset=utf-8"


def address_of(given: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises ValueError."""
    host, found, port = given.rpartition(":")
    if not found or not host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004  the highest port
        msg = f"{given!r} is no address: write HOST:PORT, such as 127.0.0.1:9464"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def answering(
    host: str, port: int, stopping: asyncio.Event, told: Callable[[int], None]
) -> Callable[[Worker], AbstractAsyncContextManager[None]]:
    """Return what answers for a worker while it runs. `told` gets the port, which for 0 is any free one."""
    library()

    @asynccontextmanager
    async def answer(worker: Worker) -> AsyncIterator[None]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
                async with asyncio.timeout(REQUEST_S):
                    await _respond(reader, writer, worker, stopping)
            writer.close()

        server = await asyncio.start_server(handle, host, port)
        async with server:
            told(server.sockets[0].getsockname()[1])
            yield

    return answer


async def _respond(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, worker: Worker, stopping: asyncio.Event
) -> None:
    method, path, *_ = (await reader.readline()).decode("latin-1").split()
    while (await reader.readline()).strip():
        pass
    status, kind, body = "200 OK", TEXT, b""
    if method not in {"GET", "HEAD"}:
        status = "405 Method Not Allowed"
    elif path == "/metrics":
        kind, body = exposed(await gauges.read(worker))
    elif path in {"/live", "/ready"}:
        why = gauges.unwell(worker) if path == "/live" else "draining" if stopping.is_set() else gauges.unready(worker)
        status, body = ("503 Service Unavailable", why.encode()) if why else (status, b"ok")
    else:
        status, body = "404 Not Found", b"/live, /ready or /metrics"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + (b"" if method == "HEAD" else body))
    await writer.drain()


def library() -> Any:
    """Return the library that writes metrics. Raises ExtraMissing."""
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        what, extra = "metrics and probes", "metrics"
        raise ExtraMissing(what, extra) from error


def exposed(found: Gauges) -> tuple[str, bytes]:
    """Return the media type and the text of the metrics."""
    registry = library().CollectorRegistry(auto_describe=False)
    registry.register(_Families(found))
    exposition = import_module("prometheus_client.exposition")
    return str(exposition.CONTENT_TYPE_LATEST), bytes(exposition.generate_latest(registry))


class _Families:
    """The metric families of one look."""

    def __init__(self, found: Gauges) -> None:
        self._found = found

    def collect(self) -> list[Any]:
        """Return the families, as the library asks for them."""
        found, core = self._found, import_module("prometheus_client.core")

        def gauge(name: str, told: str, value: float) -> Any:
            return core.GaugeMetricFamily(f"milepost_{name}", told, value=value)

        def counter(name: str, told: str, value: float) -> Any:
            return core.CounterMetricFamily(f"milepost_{name}", told, value=value)

        def labelled(name: str, told: str, label: str, values: dict[str, float]) -> Any:
            family = core.GaugeMetricFamily(f"milepost_{name}", told, labels=[label])
            for key, value in values.items():
                family.add_metric([key], value)
            return family

        waiting = {one.queue: one.waiting for one in found.queues}
        held = {one.queue: one.held for one in found.queues}
        return [
            gauge("worker_runs_driven", "Runs that this worker drives now.", found.driven),
            gauge("worker_room", "Runs that it could drive besides.", found.room),
            counter("worker_runs_advanced", "Runs that it has driven until they rested or ended.", found.advanced),
            counter("worker_commits", "Transactions that it has written.", found.commits),
            counter("worker_lease_lapses", "Times that its lease lapsed before it was renewed.", found.lapses),
            gauge("worker_lease_left_seconds", "Time left of its lease.", found.lease_left_s),
            gauge("worker_runs_still", "Runs of it that sit still: see its log.", found.still),
            labelled("runs", "Runs of the store by status.", "status", dict(found.by_status)),
            labelled("queue_waiting", "Runs that are due and wait for their turn.", "queue", dict(waiting)),
            labelled("queue_held", "Runs that some worker holds.", "queue", dict(held)),
            labelled("queue_oldest_wait_seconds", "How long the first of them waits.", "queue", found.oldest_wait_s),
        ]
