"""A pytest plugin for the copy that is worked in: the tests are collected once, and each mutant has a fork of its own.

Instead of running the tests once it measures them (how long each takes, and which lines of functions that are mutated
it runs), and then tries every mutant that is asked for: only the tests that run what it changes, the likely ones
first, up to the first that fails.

The tests of one mutant have SECONDS_OF_TESTS altogether, as measured: the last of several hundred tests that run a
whole workflow rarely tell what the others did not. So what survives might be killed by another test, but what counts
as killed was.

A mutant that was stopped because a test took too long is not counted like one that a test refuted: it may be the
machine that was slow. It ends with a code of its own, and is tried once more.

A mutated function is called through two more, so the stack may be three times as deep.
"""

import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import CodeType, FrameType
from typing import cast

import pytest

MEASURED = Path("measured.json")
ASKED = Path("asked.json")  # the names of the mutants to try, each with the first and the last line it changes
TRIED = Path("tried.jsonl")  # what became of each: its name, its exit code, and the test that spoke against it
ORIGINAL = "__mutmut_orig"
UNDER_TEST = "MUTANT_UNDER_TEST"  # by which mutmut's functions choose among their mutants
NO_TESTS = 33  # mutmut's own codes: no test reaches it, and it was stopped by the clock
TOO_LONG = 36
FAILED = 1
HANGING_S = 5  # a test that takes so much longer than ten times what it took is stopped: its mutant hangs
HANGING_AGAIN_S = 10
UNMEASURED_S = 180
SECONDS_OF_TESTS = 15
LEFT_ALONE_S = 60  # a process that does not even notice its own clock is killed after so much more
TOGETHER = 3  # mutants at a time: what runs a workflow waits more than it computes
PATIENCE = "MUTANTS_PATIENCE"  # how many times as long as usual the tests of one mutant may take

sys.setrecursionlimit(4 * sys.getrecursionlimit())


@dataclass
class Measured:
    """What the tests showed without a mutant, and the files for which it holds."""

    seconds: dict[str, float] = field(default_factory=dict)
    reaching: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by function and test, the lines
    sources: str = ""
    files: dict[str, str] = field(default_factory=dict)  # by test file, its digest

    def keep(self, sources: str, files: dict[str, str]) -> None:
        """Forget what does not hold for these files any more: all of it if the sources changed."""
        if self.sources != sources:
            self.seconds, self.reaching = {}, {}
        same = {name for name in self.seconds if files.get(_file(name)) == self.files.get(_file(name))}
        self.seconds = {name: took for name, took in self.seconds.items() if name in same}
        self.reaching = {
            function: {name: lines for name, lines in tests.items() if name in same}
            for function, tests in self.reaching.items()
        }
        self.sources, self.files = sources, files


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Failing:
    """Ends the process of a mutant at the first test that fails."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say which test it was."""
        if report.failed:
            self.told.write_text(report.nodeid, encoding="utf-8")
            os._exit(FAILED)


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Measure the tests and try the mutants, instead of running the tests once."""
    gc.freeze()
    measured = _measured(session)
    items = {item.nodeid: item for item in session.items}
    patience = int(os.environ.get(PATIENCE, "1"))
    with TRIED.open("a", encoding="utf-8") as tried:
        killers: dict[str, list[str]] = {}
        for name, code, against in _all(_mutants(items, measured, killers, patience)):
            if against:
                known = killers.setdefault(_function(name), [])
                known[:] = [against, *(one for one in known if one != against)]
            tried.write(json.dumps([name, code, against]) + "\n")
            tried.flush()
    return True


def _function(mutant: str) -> str:
    return mutant.partition("__mutmut_")[0]


Forked = tuple[str, Callable[[Path], None], float]  # a name, what its process does, and how many seconds it should take


def _mutants(
    items: dict[str, pytest.Item], measured: Measured, killers: dict[str, list[str]], patience: int
) -> Iterator[Forked]:
    for name, (first, last) in json.loads(ASKED.read_text(encoding="utf-8")).items():
        function = _function(name)
        known = measured.reaching.get(function, {}).items()
        reaching = [test for test, lines in known if any(first <= line <= last for line in lines)]
        tests = chosen(reaching, measured.seconds, killers.get(function, []), patience)
        took = sum(measured.seconds[test] for test in tests)
        limits = [
            (items[test], (HANGING_S if patience == 1 else HANGING_AGAIN_S) + 10 * measured.seconds[test])
            for test in tests
        ]
        yield name, _trying(name, limits), took


def chosen(reaching: Sequence[str], seconds: dict[str, float], killers: Sequence[str], patience: int = 1) -> list[str]:
    """Return the tests of a mutant in their order.

    Those that killed one of its kind come first. Of the others the quick ones do, but each the later the more there are
    before it in its file: what stands in one file is about one thing, so the others tell more.
    """
    kills = {name: place for place, name in enumerate(killers)}
    before: Counter[str] = Counter()
    weight = {}
    for name in sorted(reaching, key=seconds.__getitem__):
        before[_file(name)] += 1
        weight[name] = seconds[name] * before[_file(name)]
    result: list[str] = []
    took = 0.0
    for name in sorted(reaching, key=lambda name: (kills.get(name, len(kills)), weight[name])):
        took += seconds[name]
        if result and took > patience * SECONDS_OF_TESTS:
            break
        result.append(name)
    return result


Limited = tuple[pytest.Item, float]  # a test, and after how many seconds it is taken to hang


def _trying(name: str, tests: list[Limited]) -> Callable[[Path], None]:
    def tried(folder: Path) -> None:
        if not tests:
            os._exit(NO_TESTS)
        os.environ[UNDER_TEST] = name
        _run(tests, Failing(folder / "against"))
        os._exit(0)

    return tried


def _run(tests: Sequence[Limited], *plugins: object) -> None:
    """Run tests in this process, which ends where one takes too long: also one that cannot be stopped in order."""
    config = tests[0][0].config
    for plugin in plugins:
        config.pluginmanager.register(plugin)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(TOO_LONG))
    for (test, seconds), following in zip(tests, [*tests[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        config.hook.pytest_runtest_protocol(item=test, nextitem=None if following is None else following[0])
    signal.setitimer(signal.ITIMER_REAL, 0)


def _measured(session: pytest.Session) -> Measured:
    """Return what is known of all tests; what is not is measured, in several processes."""
    measured = Measured(**json.loads(MEASURED.read_text(encoding="utf-8"))) if MEASURED.exists() else Measured()
    measured.keep(*_digests({_file(item.nodeid) for item in session.items}))
    unknown = [item for item in session.items if item.nodeid not in measured.seconds]
    parts = [part for part in (unknown[place::TOGETHER] for place in range(TOGETHER)) if part]
    found, codes = Path(tempfile.mkdtemp()), []
    for name, code, _ in _all((f"{place}", _measuring(part, found), 600) for place, part in enumerate(parts)):
        codes.append(code)
        part = Measured(**json.loads((found / name).read_text(encoding="utf-8")))
        measured.seconds |= part.seconds
        for function, tests in part.reaching.items():
            measured.reaching.setdefault(function, {}).update(tests)
    if any(codes):
        pytest.exit("the tests do not pass without any mutant, see above", returncode=FAILED)
    MEASURED.write_text(json.dumps(asdict(measured)), encoding="utf-8")
    return measured


def _digests(tests: set[str]) -> tuple[str, dict[str, str]]:
    """Return a digest of all that stands beside these files, and one for each of them."""
    digests = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("src", "tests")
        for path in sorted(Path(folder).rglob("*.py"))
    }
    beside = {path: digest for path, digest in digests.items() if not Path(path).name.startswith("test_")}
    return hashlib.sha256(json.dumps(beside).encode()).hexdigest(), {path: digests[path] for path in tests}


def _measuring(tests: list[pytest.Item], found: Path) -> Callable[[Path], None]:
    """Run the tests and note how long each takes and which lines of mutated functions it runs.

    All of them have to pass; one that fails is run once more, since a machine may be busy.
    """

    def measured(folder: Path) -> None:
        result, failed, lines = Measured(), [], Lines()

        class Watching:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    failed.append(report.nodeid)
                    print(f"{report.longreprtext[-1_000:]}\n{report.nodeid} fails without any mutant", file=sys.stderr)
                result.seconds[report.nodeid] = result.seconds.get(report.nodeid, 0.0) + report.duration
                for function, reached in lines.taken().items():
                    before = result.reaching.setdefault(function, {}).get(report.nodeid, [])
                    result.reaching[function][report.nodeid] = sorted({*before, *reached})

        os.environ[UNDER_TEST] = ""
        threading.settrace(lines)
        sys.settrace(lines)
        _run([(test, UNMEASURED_S) for test in tests], Watching())
        if failed:  # one that fails now and then speaks for nothing, and is left out
            unsure = [test for test in tests if test.nodeid in failed]
            failed.clear()
            _run([(test, UNMEASURED_S) for test in unsure])
            for reaching in result.reaching.values():
                for test in unsure:
                    reaching.pop(test.nodeid, None)
        sys.settrace(None)
        (found / folder.name).write_text(json.dumps(asdict(result)), encoding="utf-8")
        sys.stderr.flush()
        os._exit(FAILED if failed else 0)

    return measured


class Lines:
    """A trace function that notes which lines of the originals run, beside which mutmut has put their mutants."""

    def __init__(self) -> None:
        self._functions: dict[CodeType, str] = {}
        self._reached: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> "Lines | None":
        """Be asked for a call, and for each line of one that is watched."""
        function = self._functions.get(frame.f_code)
        if function is None:
            whole, original, _ = frame.f_code.co_qualname.partition(ORIGINAL)
            function = f"{frame.f_globals.get('__name__', '')}.{whole.rpartition('.')[2]}" if original else ""
            self._functions[frame.f_code] = function
        if not function:
            return None
        if event == "line":
            self._reached.setdefault(function, set()).add(frame.f_lineno)
        return self

    def taken(self) -> dict[str, set[int]]:
        """Return what was reached since this was asked last, by function."""
        reached, self._reached = self._reached, {}
        return reached


def _all(work: Iterator[Forked]) -> Iterator[tuple[str, int, str]]:
    """Fork a process for each, some at a time, and yield its name, its exit code and the test that ended it."""
    fork = multiprocessing.get_context("fork")
    top = Path(tempfile.mkdtemp())
    running: dict[int, tuple[str, ForkProcess, float]] = {}
    more = True
    while more or running:
        while more and len(running) < TOGETHER:
            given = next(work, None)
            more = given is not None
            if given is not None:
                name, does, took = given
                (top / name).mkdir()
                process = fork.Process(target=_alone, args=(does, top / name))
                process.start()
                running[process.sentinel] = name, process, time.monotonic() + LEFT_ALONE_S + 10 * took
        ended = set(wait(list(running), timeout=1))
        for sentinel, (name, process, until) in list(running.items()):
            late = time.monotonic() > until
            if sentinel in ended or late:
                del running[sentinel]
                yield name, *_ended(process, top / name, late=late)
    shutil.rmtree(top, ignore_errors=True)


def _alone(does: Callable[[Path], None], folder: Path) -> None:
    """Let a forked process have a folder, a group and no terminal of its own."""
    os.setsid()
    with Path(os.devnull).open("r+") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        does(folder)
    finally:
        os._exit(FAILED)


def _ended(process: ForkProcess, folder: Path, *, late: bool) -> tuple[int, str]:
    """End whatever the process has left behind."""
    with contextlib.suppress(ProcessLookupError):  # it may have no group of its own yet
        os.killpg(cast("int", process.pid), signal.SIGKILL)
    process.kill()
    process.join()
    against = folder / "against"
    test = against.read_text(encoding="utf-8") if against.exists() else ""
    shutil.rmtree(folder, ignore_errors=True)
    return (TOO_LONG if late or process.exitcode is None else process.exitcode), test
