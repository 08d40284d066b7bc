"""The mutants of one part, made and tried in a copy of the repository: nothing of it is left beside the sources.

The copy stands in `build/mutants/`. mutmut writes all mutants of a function beside it and chooses one when the function
is called; each is tried in a process of its own, forked from one that has imported everything (see in_the_copy.py).
What the tests write goes to memory where there is such a place, because what is asked here is logic and not the disk.
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
from mutmut.mutation.file_mutation import filter_mutants_with_type_checker
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_source_files

from mutation import in_the_copy
from mutation.changes import Found, Mutant, mutants_in
from mutation.in_the_copy import ASKED, MEASURED, PATIENCE, TRIED
from mutation.parts import PACKAGE, ROOT, Part

BUILD = ROOT / "build" / "mutants"
IN_MEMORY = Path("/dev/shm")  # noqa: S108  only the tests' own temporary folders, each made by pytest
PATIENT = 8
SKIPPED = 34  # mutmut's own codes: for a mutant that is not tried, and for one that the type checker refuses
REFUSED = 37
ENDED_WELL = {0, 5}  # pytest's own codes: no test is counted, since each ran elsewhere
DECIDED = {"killed", "timeout", "caught by type check", "skipped"}

CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
type_check_command = {types}
use_git_change_detection = false
use_setproctitle = false
"""
OPTIONS = (
    "-q", "-s", "-p", "in_the_copy", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "faulthandler_timeout=0",
    "-o", "timeout=0",  # a hanging mutant is ended from outside
    "--hypothesis-seed=0", "--tb=native", "--rootdir=.",
)  # fmt: skip

# What the repository asks of its own sources, less what mutmut's own lines would be blamed for.
TYPES = """
[mypy]
python_version = 3.11
strict = True
mypy_path = $MYPY_CONFIG_FILE_DIR/mutants/src
enable_error_code = exhaustive-match, unused-awaitable
cache_dir = {cache}
disable_error_code = unused-ignore
"""


@dataclass
class Tried:
    """What became of the mutants of one part: by module how many ended how, and those that survived."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    survived: dict[Mutant, str] = field(default_factory=dict)  # with mutmut's own name
    known: set[Mutant] = field(default_factory=set)
    late: set[str] = field(default_factory=set)  # by the same name, those that were stopped by the clock

    def take(self, other: "Tried") -> None:
        """Add what another part found."""
        self.counts.update(other.counts)
        self.survived.update(other.survived)
        self.known |= other.known


def try_part(part: Part, explained: set[Mutant], *, again: bool, quick: bool = False) -> Tried:
    """Make the mutants of a part and try them. `again` keeps what a former run killed where its function is as it was.

    Unless it is to be `quick`, three kinds have a second chance, with several times as many tests and as much time for
    each: what survived, what nothing but the clock spoke against, which counts as killed if it hangs again, and an
    `explained` one that was killed, because on a busy machine a test may fail by itself. Raises RuntimeError where the
    tests do not pass without a mutant.
    """
    tree = BUILD / part.name
    _copy(part, tree, again=again)
    with contextlib.chdir(tree):
        names = dict(_made(part))
    print(
        f"{part.name}: {len(names)} mutants, {sum(found.words for found in names.values())} of them change only words"
    )
    _run(part, tree, names)
    tried = _read(part, tree, names)
    print(f"{part.name}: {len(tried.survived)} survive", flush=True)
    if not quick:
        doubtful = {key for key, one in names.items() if one.mutant in explained and one.mutant not in tried.survived}
        again_ = tried.late | doubtful | set(tried.survived.values())
        print(f"{part.name}: {len(again_)} survived, took too long or are explained: once more, with patience")
        _open(part, tree, again_)
        _run(part, tree, names, PATIENT)
        tried = _read(part, tree, names)
    return tried


def _copy(part: Part, tree: Path, *, again: bool) -> None:
    kept = {path: path.read_bytes() for path in (*tree.rglob("*.meta"), tree / "mutants" / MEASURED) if path.exists()}
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = CONFIG.format(
        modules=json.dumps([f"{PACKAGE}/{module}" for module in part.modules]),
        types=json.dumps(_types(part, tree)),
    )
    (tree / "mypy.ini").write_text(TYPES.format(cache=BUILD / "types" / part.name), encoding="utf-8")
    (tree / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8") + config, encoding="utf-8"
    )
    (tree / "mutants").mkdir()
    shutil.copy(Path(in_the_copy.__file__), tree / "mutants")
    for path, content in kept.items() if again else ():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _types(part: Part, tree: Path) -> list[str]:
    """Return how mypy looks at the mutants: what `make lint` refuses never reaches a test."""
    files = [f"{PACKAGE}/{module}" for module in part.modules]
    return [sys.executable, "-m", "mypy", *files, "--output", "json", "--config-file", str(tree / "mypy.ini")]


def _made(part: Part) -> Iterator[tuple[str, Found]]:
    """Make the mutants; yield each by mutmut's name. Those that change only words are marked as not to be tried."""
    reset_config()
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        for path in walk_source_files():
            made = create_file_mutants(path)
            if made.error is not None:
                raise RuntimeError(str(made.error)) from made.error
    refused = filter_mutants_with_type_checker()
    for module in part.modules:
        with _results(Path(), module) as codes:
            dotted = ".".join(Path(PACKAGE, module).with_suffix("").parts[1:])
            mutated = Path("mutants", PACKAGE, module).read_text(encoding="utf-8")
            for name, found in mutants_in(module, mutated):
                key = f"{dotted}.{name}"
                if found.words:
                    codes[key] = SKIPPED
                elif key in refused:
                    codes[key] = REFUSED
                elif status_by_exit_code[codes[key]] != "killed":
                    codes[key] = None
                yield key, found


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


def _run(part: Part, tree: Path, names: dict[str, Found], patience: int = 1) -> None:
    """Let all that is undecided meet the tests that reach it."""
    asked: dict[str, tuple[int, int]] = {}
    for module in part.modules:
        with _results(tree, module) as codes:
            asked |= {name: names[name].lines for name, code in codes.items() if code is None}
    if not asked:
        return
    work = tree / "mutants"
    (work / ASKED).write_text(json.dumps(asked), encoding="utf-8")
    (work / TRIED).unlink(missing_ok=True)
    environment = {**os.environ, PATIENCE: str(patience), "PYTHONPATH": f"{work / 'src'}{os.pathsep}{work}"}
    if os.access(IN_MEMORY, os.W_OK):
        environment["TMPDIR"] = str(IN_MEMORY)
    command = [sys.executable, "-m", "pytest", *OPTIONS, *part.tests]
    with (tree / "tests.log").open("wb") as log:
        done = subprocess.run(command, cwd=work, env=environment, stdout=log, stderr=log, check=False)
    became = {}
    if (work / TRIED).exists():
        for line in (work / TRIED).read_text(encoding="utf-8").splitlines():
            name, code, _ = json.loads(line)
            became[name] = code
    for module in part.modules:
        with _results(tree, module) as codes:
            codes.update({name: code for name, code in became.items() if name in codes})
    if done.returncode not in ENDED_WELL or became.keys() != asked.keys():
        said = (tree / "tests.log").read_text(encoding="utf-8", errors="replace")
        msg = (
            f"The tests ended with {done.returncode}. Do they pass without any mutant? They said last:\n{said[-4_000:]}"
        )
        raise RuntimeError(msg)


def _read(part: Part, tree: Path, names: dict[str, Found]) -> Tried:
    tried = Tried()
    for module in part.modules:
        with _results(tree, module) as codes:
            counts = tried.counts[module] = Counter()
            for key, code in codes.items():
                mutant = names[key].mutant
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
