"""One run of mutmut, in a copy of the repository: nothing of it is left beside the sources.

The copy stands in `build/mutants/`. mutmut writes all mutants of a function beside it and chooses one when the function
is called; each is tried in a process of its own, forked from one that has imported everything. What the tests write
goes to memory where there is such a place, because what is asked here is logic and not the disk.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_file_mutants
from mutmut.configuration import reset_config
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_source_files

from mutation import in_the_copy
from mutation.changes import Mutant, mutants_in
from mutation.in_the_copy import MEASURED, QUICK_S, STATS, WHICH, measured
from mutation.parts import PACKAGE, ROOT, Part

BUILD = ROOT / "build" / "mutants"
IN_MEMORY = Path("/dev/shm")  # noqa: S108  only the tests' own temporary folders, each made by pytest
SKIPPED = 34  # mutmut's own code for a mutant that is not tried
DECIDED = {"killed", "timeout", "caught by type check", "skipped"}
TOGETHER = {"quick": 2, "slow": 4}  # mutants at a time; the slow tests wait more than they compute
SPINNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"  # what mutmut begins the lines with that it writes over

CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = [
  "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", "--hypothesis-seed=0",
  "-p", "in_the_copy",
]
type_check_command = {types}
process_isolation = "forkserver"
use_git_change_detection = false
use_setproctitle = false
timeout_multiplier = 2.0
timeout_constant = 15.0
"""

# What the repository asks of its own sources, less what mutmut's own lines would be blamed for.
TYPES = """
[mypy]
python_version = 3.11
strict = True
mypy_path = $MYPY_CONFIG_FILE_DIR/mutants/src
enable_error_code = exhaustive-match, unused-awaitable
disable_error_code = unused-ignore
"""


@dataclass
class Tried:
    """What became of the mutants of one part: by module how many ended how, and those that survived."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    survived: dict[Mutant, str] = field(default_factory=dict)  # with the name that `mutmut show` takes
    known: set[Mutant] = field(default_factory=set)
    late: set[str] = field(default_factory=set)  # by the same name, those that were stopped by the clock

    def take(self, other: "Tried") -> None:
        """Add what another part found."""
        self.counts.update(other.counts)
        self.survived.update(other.survived)
        self.known |= other.known


def try_part(part: Part, explained: set[Mutant], *, again: bool) -> Tried:
    """Make the mutants of a part and try them. `again` keeps what a former run killed where its function is as it was.

    Two kinds have a second chance, because on a busy machine a test may fail by itself: one that nothing but the clock
    spoke against, which counts as killed if it hangs again, and an `explained` one that is killed. Raises RuntimeError
    where mutmut could not do its work.
    """
    tree = BUILD / part.name
    _copy(part, tree, again=again)
    with contextlib.chdir(tree):
        names = dict(_made(part))
    print(f"{part.name}: {len(names)} mutants, {sum(words for _, words in names.values())} of them change only words")
    tried = _meet(part, tree, names)
    if tried.late:
        print(f"{part.name}: {len(tried.late)} took too long: once more", flush=True)
        _open(part, tree, tried.late)
        tried = _meet(part, tree, names)
    doubtful = (explained & tried.known) - set(tried.survived)
    if doubtful:
        print(f"{part.name}: {len(doubtful)} that are explained were killed: once more")
        _open(part, tree, {key for key, (mutant, _) in names.items() if mutant in doubtful})
        tried = _meet(part, tree, names)
    return tried


def _meet(part: Part, tree: Path, names: dict[str, tuple[Mutant, bool]]) -> Tried:
    """Let what is undecided meet the quick tests, and what survives them the slow ones."""
    tried = Tried()
    for meeting, together in TOGETHER.items():
        if meeting == "slow" and not (tried.survived and _any_slow(tree)):
            break  # mutmut refuses to run no tests at all
        _run(tree, {WHICH: meeting}, together)
        tried = _read(part, tree, names)
        print(f"{part.name}: {len(tried.survived)} survive the {meeting} tests", flush=True)
        if meeting == "quick":
            _open(part, tree, set(tried.survived.values()))
    return tried


def _any_slow(tree: Path) -> bool:
    return max(measured(tree / "mutants" / MEASURED).values()) >= QUICK_S


def _copy(part: Part, tree: Path, *, again: bool) -> None:
    kept = {path: path.read_bytes() for path in tree.rglob("*.meta")} if again else {}
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = CONFIG.format(
        modules=json.dumps([f"{PACKAGE}/{module}" for module in part.modules]),
        tests=json.dumps(part.tests),
        types=json.dumps(_types(part, tree)),
    )
    (tree / "mypy.ini").write_text(TYPES, encoding="utf-8")
    (tree / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8") + config, encoding="utf-8"
    )
    (tree / "mutants").mkdir()
    shutil.copy(Path(in_the_copy.__file__), tree / "mutants")
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _types(part: Part, tree: Path) -> list[str]:
    """Return how mypy looks at the mutants: what `make lint` refuses never reaches a test."""
    files = [f"{PACKAGE}/{module}" for module in part.modules]
    return ["mypy", *files, "--output", "json", "--config-file", str(tree / "mypy.ini")]


def _made(part: Part) -> Iterator[tuple[str, tuple[Mutant, bool]]]:
    """Make the mutants; yield each by mutmut's name. Those that change only words are marked as not to be tried."""
    reset_config()
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        for path in walk_source_files():
            made = create_file_mutants(path)
            if made.error is not None:
                raise RuntimeError(str(made.error)) from made.error
    for module in part.modules:
        with _results(Path(), module) as codes:
            dotted = ".".join(Path(PACKAGE, module).with_suffix("").parts[1:])
            mutated = Path("mutants", PACKAGE, module).read_text(encoding="utf-8")
            for name, mutant, words in mutants_in(module, mutated):
                key = f"{dotted}.{name}"
                if words:
                    codes[key] = SKIPPED
                elif codes[key] == SKIPPED or status_by_exit_code[codes[key]] != "killed":
                    codes[key] = None
                yield key, (mutant, words)


@contextlib.contextmanager
def _results(tree: Path, module: str) -> Iterator[dict[str, int | None]]:
    """Give the exit codes that mutmut keeps of a module's mutants; what is changed in them is kept."""
    meta = tree / "mutants" / PACKAGE / f"{module}.meta"
    told: dict[str, Any] = json.loads(meta.read_text(encoding="utf-8")) if meta.exists() else {}
    codes: dict[str, int | None] = told.get("exit_code_by_key", {})
    before = dict(codes)
    yield codes
    if codes != before:
        meta.write_text(json.dumps(told), encoding="utf-8")


def _run(tree: Path, which: dict[str, str], together: int) -> None:
    beside = Path(sys.executable).parent
    environment = {**os.environ, **which, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    if os.access(IN_MEMORY, os.W_OK):
        environment["TMPDIR"] = str(IN_MEMORY)
    kept = tree / "mutants" / MEASURED
    if kept.exists():
        shutil.copy(kept, tree / "mutants" / STATS)
    command = [str(beside / "mutmut"), "run", "--max-children", str(together)]
    with (tree / "mutmut.log").open("wb") as log:
        done = subprocess.run(command, cwd=tree, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        lines = (tree / "mutmut.log").read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
        said = "\n".join(line for line in lines if line and line[0] not in SPINNING)
        msg = f"mutmut ended with {done.returncode}. Do the tests pass by themselves? It said last:\n{said[-2_000:]}"
        raise RuntimeError(msg)


def _read(part: Part, tree: Path, names: dict[str, tuple[Mutant, bool]]) -> Tried:
    tried = Tried()
    for module in part.modules:
        with _results(tree, module) as codes:
            counts = tried.counts[module] = Counter()
            for key, code in codes.items():
                mutant, _ = names[key]
                tried.known.add(mutant)
                status = status_by_exit_code[code]
                counts[status] += 1
                if status == "timeout":
                    tried.late.add(key)
                if status not in DECIDED:
                    tried.survived[mutant] = key
    return tried


def _open(part: Part, tree: Path, keys: set[str]) -> None:
    """Let these mutants be tried once more."""
    for module in part.modules:
        with _results(tree, module) as codes:
            codes.update(dict.fromkeys(keys & codes.keys()))
