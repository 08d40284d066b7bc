"""A desk in a process of its own: its spans, and the headers that its tools sent, go to files that others read.

`python -m tests.adapters.opentelemetry.program FOLDER`: where FOLDER/die stands, it is killed in the middle of its
second tool, after the outside has applied what was asked.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import milepost as mp
from milepost.adapters.opentelemetry import Tracing
from tests.polling import eventually

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


class ToFile(SpanExporter):
    """One line a span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with (FOLDER / "spans.jsonl").open("a") as lines:
            lines.writelines(span.to_json(indent=None) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


def applied(what: str, call: mp.Call) -> None:
    """Act outside: a line in a ledger, with the header that came along."""
    with (FOLDER / "ledger.jsonl").open("a") as lines:
        lines.write(json.dumps({"what": what, "key": call.key, "traceparent": call.traceparent}) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


@mp.tool(effect="absolute")
async def book(call: mp.Call, order: str) -> str:
    """Book an order: doing it again changes nothing more."""
    applied(f"book {order}", call)
    return order


@mp.tool(effect="queryable", visible_within="1ms")
async def pay(call: mp.Call, order: str) -> str:
    """Pay an order: the ledger can be asked."""
    applied(f"pay {order}", call)
    if (FOLDER / "die").exists():
        spans = FOLDER / "spans.jsonl"
        await asyncio.to_thread(eventually, lambda: spans.exists() and "book" in spans.read_text())
        (FOLDER / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return order


@pay.reconcile
async def _found(call: mp.Call, order: str) -> mp.Finding[str]:
    lines = [json.loads(line) for line in (FOLDER / "ledger.jsonl").read_text().splitlines()]
    return mp.happened(order) if any(line["key"] == call.key for line in lines) else mp.did_not_happen()


desk = mp.Workflow("desk", version="1", input=str, result=str, tools=[book, pay])


@desk.segment
async def booking(run: mp.Run, order: str) -> mp.Next[str]:
    """Book."""
    return mp.go(paying, await book(order))


@desk.segment
async def paying(run: mp.Run, order: str) -> mp.Next[str]:
    """Pay."""
    return mp.done(await pay(order))


def main() -> None:
    """Run the one order."""
    app = mp.App(f"sqlite:///{FOLDER / 'desk.db'}", workflows=[desk])
    app.observe(Tracing(SimpleSpanProcessor(ToFile()), every="10ms"))
    sys.stdout.write(app.run(desk, "order-1", key="order-1") + "\n")


if __name__ == "__main__":
    main()
