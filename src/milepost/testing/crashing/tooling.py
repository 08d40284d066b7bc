"""Kill points inside the tools of a workflow: each line of their code, and the moment in which it is done.

A line counts if it belongs to the package in which the tool is declared, and runs inside a call of the tool; so the
function that a tool calls to build and send its request is taken apart as well, and the libraries below are not. The
module of the outside world does not count: what happens in there happens outside, at once.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import FrameType
from typing import Any

from milepost.definitions.tools import Tool
from milepost.testing.crashing.points import Fuse

INSIDE: ContextVar[str] = ContextVar("milepost_crashing", default="")


def instrument(tools: Iterable[Tool[..., Any]], fuse: Fuse, outside: str) -> None:
    """Let the tools pass kill points, in this process: it was forked for that, and nobody else sees them.

    `outside` is the name of the module whose code stands for the outside world.
    """
    packages = set()
    for tool in tools:
        packages.add(_package(getattr(inspect.unwrap(tool.fn), "__module__", "") or ""))
        tool.fn = (_asked if tool.is_async else _called)(tool.name, tool.fn, fuse)
    trace = _tracer(frozenset(packages - {""}), outside, fuse)
    threading.settrace(trace)
    sys.settrace(trace)


def _asked(tool: str, fn: Callable[..., Any], fuse: Fuse) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        name = fuse.calls(tool)
        before = INSIDE.set(name)
        try:
            value = await fn(*args, **kwargs)
            INSIDE.reset(before)
            fuse.come(f"{name}: returned")
        except Exception as error:
            INSIDE.set("")
            fuse.come(f"{name}: raised {type(error).__name__}")
            raise
        finally:
            fuse.ends()
        return value

    return call


def _called(tool: str, fn: Callable[..., Any], fuse: Fuse) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        name = fuse.calls(tool)
        before = INSIDE.set(name)
        try:
            value = fn(*args, **kwargs)
            INSIDE.reset(before)
            fuse.come(f"{name}: returned")
        except Exception as error:
            INSIDE.set("")
            fuse.come(f"{name}: raised {type(error).__name__}")
            raise
        finally:
            fuse.ends()
        return value

    return call


def _tracer(packages: frozenset[str], outside: str, fuse: Fuse) -> Callable[[FrameType, str, Any], Any]:
    def inside(frame: FrameType, event: str, _: Any) -> Any:
        call = INSIDE.get()
        if event == "line" and call:
            fuse.line(call, frame)
        return inside

    def trace(frame: FrameType, _event: str, _arg: Any) -> Any:
        if not INSIDE.get():
            return None
        module = str(frame.f_globals.get("__name__", ""))
        return inside if module != outside and _package(module) in packages else None

    return trace


def _package(module: str) -> str:
    return module.partition(".")[0]
