"""The processes of a soak: started, watched and ended by their ids, and gone when this one is."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from soak.scene import VERSION, WHERE

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
LEAVES_WITHIN_S = 40.0
GRACE = "5s"


def die_with_parent() -> None:
    """Be killed when the process that started this one ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass
class Life:
    """One process, from its start to its end. `memory` is its resident set over its life: (seconds, kB)."""

    name: str
    version: str
    popen: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    asked: str = ""  # what we ended it with
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.began

    def look(self) -> None:
        """Note how much memory it has."""
        with suppress(OSError):
            lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
            now = [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
            self.memory.extend((self.age, kb) for kb in now)  # one that has just ended has none

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.asked = "SIGKILL"
        self.popen.kill()
        self.popen.wait()
        self.ended = time.monotonic()

    def drain(self) -> int:
        """Tell it to leave, and wait; return its code."""
        self.asked = "SIGTERM"
        self.popen.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(LEAVES_WITHIN_S)
        if self.lives:
            self.popen.kill()
            self.popen.wait()
        self.ended = time.monotonic()
        return self.popen.returncode

    def said(self, most: int = 1_500) -> str:
        """Return the end of what it logged."""
        return self.log.read_text(errors="replace")[-most:]


class Processes:
    """All processes that a soak has started."""

    def __init__(self, scene_file: Path, local: Path) -> None:
        self._folder = scene_file.parent
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._environment = {
            **os.environ, "PYTHONPATH": path, WHERE: str(scene_file), "MILEPOST_LOCAL": str(local),
        }  # fmt: skip
        self.all: list[Life] = []

    def start(self, name: str, version: str, *arguments: str) -> Life:
        """Start a module with arguments."""
        log = self._folder / f"{name}-{len(self.all)}.log"
        with log.open("wb") as said:
            popen = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**self._environment, VERSION: version},
                cwd=self._folder,
                preexec_fn=die_with_parent,  # noqa: PLW1509  this process has no threads of its own
            )
        life = Life(name, version, popen, log)
        self.all.append(life)
        return life

    def worker(self, name: str, version: str, queues: tuple[str, ...]) -> Life:
        """Start a worker as it is started in production, without the process around it: that is this one."""
        served = [word for queue in queues for word in ("--queue", queue)]
        given = ("--app", "soak.served:app", "--no-supervisor", "--concurrency", "40", "--grace", GRACE)
        return self.start(name, version, "milepost", "worker", *given, "--log-level", "warning", *served)

    def people(self, version: str) -> Life:
        """Start those who start and answer runs."""
        return self.start("people", version, "soak.people", version)

    def run(self, version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a module to its end."""
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            env={**self._environment, VERSION: version},
            capture_output=True,
            text=True,
            check=False,
        )

    def close(self) -> None:
        """End what is left."""
        for life in self.all:
            if life.lives:
                life.kill()
