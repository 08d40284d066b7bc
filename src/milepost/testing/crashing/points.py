"""Kill points: the named places of a run at which its worker may die.

A name says what has just been done, or is about to be, and not how often the clock ticked; so it is the same in the
next run of the same workflow, and a test can ask for it:

  before effect started pay/refund#1    the transaction that writes this entry was not begun
  after effect started pay/refund#1     it is durable, and nothing else happened
  refund#1: before bank.post(order)     inside the tool's code, at this line of it, in the first call of the tool
  refund#1: returned                    the tool's code is done, and its answer is not recorded
  refund#1: raised ConnectError         the same, where it ended in an error

What comes a second time under the same name has ` (time 2)` behind it. Entries that are written in one transaction are
one place, named by the weightiest of them; which ones are written together depends on timing, so a name fits as long as
its entry is written at all.
"""

from __future__ import annotations

import linecache
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType

from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import MilepostError
from milepost.stores.api import Append, Claim, Create, Deliver, Operation
from milepost.stores.fleet import Enlist

# A loop inside a tool comes to the same line again and again: the first times tell what there is to tell.
TIMES_MOST = 3
SHOWN_MOST = 70
WEIGHTY = (
    e.EffectStarted, e.EffectConfirmed, e.EffectFailed, e.EffectUnknown, e.RunDone, e.Checkpointed, e.Rewound,
    e.RunStopped, e.EffectPlanned,
)  # fmt: skip


class Labels:
    """Names what operations write. It has to see all of them: an effect's outcome only names its place."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, str], str] = {}
        self._children: dict[str, str] = {}

    def of(self, operations: Sequence[Operation]) -> list[str]:
        """Return the labels of what is written together, the weightiest first; none where nothing is worth a name."""
        weighed: list[tuple[int, str]] = []
        for operation in operations:
            match operation:
                case Append(head=head, entries=entries):
                    for body in entries:
                        entry = codec.decode(body)
                        weighed.append((_weight(entry), self._label(entry, head.run_id)))
                case Create(run=run):
                    if run.parent is not None:
                        self._children[run.id] = run.workflow
                    weighed.append((0, f"run created{self._whose(run.id)}"))
                case Claim(run_id=run_id):
                    weighed.append((0, f"claimed{self._whose(run_id)}"))
                case Deliver():
                    weighed.append((len(WEIGHTY) + 1, "message delivered"))
                case Enlist():
                    weighed.append((len(WEIGHTY) + 1, "worker enlisted"))
                case _:
                    pass
        return [label for _, label in sorted(weighed, key=lambda one: one[0])]

    def _label(self, entry: e.Entry, run_id: str) -> str:
        path = getattr(getattr(entry, "plan", None) or entry, "path", "")
        step = getattr(entry, "step", "")
        if isinstance(entry, e.Checkpointed | e.Rewound):  # in the next segment the same places belong to other calls
            self._paths = {at: known for at, known in self._paths.items() if at[0] != run_id}
        if path:
            self._paths[run_id, step] = path
        path = path or self._paths.get((run_id, step), "")
        return f"{codec.name_of(entry).replace('_', ' ')} {path}".rstrip() + self._whose(run_id)

    def _whose(self, run_id: str) -> str:
        child = self._children.get(run_id)
        return f" of {child}" if child is not None else ""


def _weight(entry: e.Entry) -> int:
    kind = type(entry)
    return WEIGHTY.index(kind) if kind in WEIGHTY else len(WEIGHTY)


class Fuse:
    """Notes every point that is passed, and burns at one of them: there it does what it was told to do.

    What passes a point may be a thread of a tool, or the loop; `burn` is called in that thread. `told` is called right
    before, with how many calls of tools are under way.
    """

    def __init__(self, at: str = "", burn: Callable[[], None] | None = None) -> None:
        self.at = at
        self.points: list[str] = []
        self.at_work = 0
        self.told: Callable[[int], None] = lambda _: None
        self._burn = burn
        self._times: Counter[str] = Counter()
        self._turn = threading.Lock()

    def before(self, labels: Sequence[str]) -> None:
        """Come to a transaction that will write what has these labels."""
        if any(self._named(f"before {label}") == self.at for label in labels):
            self._now()

    def after(self, labels: Sequence[str]) -> None:
        """Leave a transaction that has written it. Only now is it known that it was written."""
        if not labels:
            return
        with self._turn:
            first, *_ = labels
            self.points += [self._named(f"before {first}"), self._named(f"after {first}")]
            passed = [self._named(f"after {label}") for label in labels]
            for label in labels:
                self._times[f"before {label}"] += 1
                self._times[f"after {label}"] += 1
        if self.at in passed:
            self._now()

    def come(self, what: str, most: int | None = None) -> None:
        """Pass a point, at most so often."""
        with self._turn:
            if most is not None and self._times[what] >= most:
                return
            name = self._named(what)
            self._times[what] += 1
            self.points.append(name)
        if name == self.at:
            self._now()

    def line(self, call: str, frame: FrameType) -> None:
        """Come to a line of a tool's code."""
        code = frame.f_code
        text = " ".join(linecache.getline(code.co_filename, frame.f_lineno).split())
        shown = text if len(text) <= SHOWN_MOST else f"{text[: SHOWN_MOST - 1]}…"
        self.come(f"{call}: before {shown or f'line {frame.f_lineno}'}", TIMES_MOST)

    def calls(self, tool: str) -> str:
        """Begin a call of a tool, and return how it is named."""
        with self._turn:
            self._times[tool] += 1
            self.at_work += 1
            return f"{tool}#{self._times[tool]}"

    def ends(self) -> None:
        """End a call of a tool."""
        with self._turn:
            self.at_work -= 1

    def _named(self, what: str) -> str:
        times = self._times[what] + 1
        return what if times == 1 else f"{what} (time {times})"

    def _now(self) -> None:
        self.told(self.at_work)
        if self._burn is not None:
            self._burn()


class NoSuchPoint(MilepostError):
    """A kill point was asked for that the undisturbed run does not pass, or whose name fits several."""

    code = "no_such_point"

    def __init__(self, asked: str, points: Sequence[str]) -> None:
        listed = "\n  ".join(points)
        super().__init__(f"{asked!r} is not the name of one kill point of this run. It passes:\n  {listed}")
        self.asked = asked
        self.points = tuple(points)


def calls(points: Sequence[str]) -> Counter[str]:
    """Count the calls of each tool, by the points that they passed."""
    made = {point.partition(": ")[0] for point in points if ": " in point}
    return Counter(call.rpartition("#")[0] for call in made)


def find(asked: str, points: Sequence[str]) -> str:
    """Return the point of this name, or the one whose name has it as a part. Raises NoSuchPoint."""
    if asked in points:
        return asked
    found = [point for point in points if asked in point]
    if len(found) != 1:
        raise NoSuchPoint(asked, found or points)
    return found[0]
