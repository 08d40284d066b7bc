"""Help comes at once: nothing but click is imported before a command is really called."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import milepost
from milepost.cli import exits
from milepost.cli.main import OWN, cli, first_sentence
from tests.cli.shop_floor import Shop

HEAVY = ["apsw", "msgspec", "asyncio", "rich", "sqlite3", "milepost.app", "milepost.runtime", "milepost.cli.runs"]

# fmt: off
NAMES = {
    "init", "worker", "start", "runs", "show", "plan", "journal", "effects", "resolve", "approvals", "approve", "deny",
    "grant", "send", "cancel", "kill", "retry", "resume", "rewind", "fork", "check", "tools", "diff", "verify",
    "doctor", "policy", "keys", "seal", "export", "import", "prune", "freeze", "thaw", "stop", "switches", "revoke",
    "budget", "queues", "schedules", "db",
}
# fmt: on


def loaded_after(code: str, *, path: Path | None = None) -> tuple[set[str], str]:
    """Run code in a new interpreter; return which heavy modules it loaded, and what it printed before."""
    seen = f"\nimport sys\nprint('LOADED', *[name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", code + seen]
    extra = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    command[2] = extra + command[2]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said, _, loaded = ran.stdout.rpartition("LOADED")
    return set(loaded.split()), said


def test_asking_for_help_loads_nothing_heavy() -> None:
    loaded, said = loaded_after("from milepost.cli.main import cli\ncli.main(['--help'], standalone_mode=False)")

    assert "Exit codes:" in said
    assert loaded == set()


def test_the_check_for_heavy_modules_sees_them() -> None:
    loaded, _ = loaded_after("import milepost; milepost.App; import rich")

    assert {"apsw", "msgspec", "asyncio", "rich", "milepost.app", "milepost.runtime"} <= loaded


def test_importing_the_package_loads_none_of_its_parts() -> None:
    loaded, _ = loaded_after("import milepost")

    assert loaded == set()


def test_every_public_name_is_found_where_the_table_says() -> None:
    assert {name for name in milepost.__all__ if not hasattr(milepost, name)} == set()
    assert set(milepost._HOME) | {"http"} == set(milepost.__all__)
    assert set(milepost.__all__) <= set(dir(milepost))
    with pytest.raises(AttributeError, match="no attribute 'Appp'"):
        _ = milepost.Appp  # type: ignore[attr-defined]


def test_help_shows_every_command_with_its_first_sentence_and_every_exit_code(bare: Shop) -> None:
    said = " ".join(bare.ok("--help").split())

    places = {name: place for section in OWN.values() for name, place in section.items()}
    assert set(places) == NAMES
    for name, place in places.items():
        assert f"{name} {first_sentence(place)}" in said
    for code, meaning in exits.MEANINGS.items():
        assert f"{code} {meaning}" in said


@pytest.mark.parametrize("name", sorted(name for section in OWN.values() for name in section))
def test_every_command_explains_itself_and_takes_json(bare: Shop, name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert isinstance(command, click.Command)
    assert command.name == name
    assert "--json" in bare.ok(name, "--help")


def test_without_a_command_help_is_shown_and_nothing_is_done(bare: Shop) -> None:
    result = bare.milepost()

    assert result.exit_code == 2
    assert "Usage: milepost" in result.output


def test_a_misspelt_command_or_option_ends_with_code_2(bare: Shop) -> None:
    for args in (
        ["rusn"],
        ["runs", "--statsu", "done"],
        ["runs", "--status", "finished"],
        ["show"],
        ["runs", "--limit", "0"],
    ):
        result = bare.milepost(*args)
        assert result.exit_code == 2, args
        assert "Error: " in result.stderr
        assert bare.refused(*args) == (2, "usage")


def registers(folder: Path, commands: str) -> None:
    """Make a distribution that registers commands, as a surface of its own does."""
    made = folder / "surface-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: surface\nVersion: 1\n")
    (made / "entry_points.txt").write_text(f"[milepost.commands]\n{commands}\n")


def test_the_help_of_another_surface_is_read_without_importing_it(tmp_path: Path) -> None:
    registers(tmp_path, "polish = surface.polishing:polish\nlost = surface.gone:lost")
    package = tmp_path / "surface"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('help must not import me')")
    (package / "polishing.py").write_text('def polish():\n    """Polish everything. Twice if asked."""\n')

    loaded, said = loaded_after(
        "from milepost.cli.main import cli\ncli.main(['--help'], standalone_mode=False)", path=tmp_path
    )

    assert re.search(r"^ *polish +Polish everything$", said, re.MULTILINE)
    assert "lost" in said
    assert loaded == set()


def test_a_registered_command_runs_under_its_name(bare: Shop) -> None:
    registers(bare.folder, "polish = polishing:polish")
    (bare.folder / "polishing.py").write_text(
        "import click\n@click.command()\ndef polish():\n    click.echo('polished')\n"
    )

    ran = bare.process("polish", env=bare.environment())

    assert (ran.returncode, ran.stdout) == (0, "polished\n")


def test_a_registered_command_whose_needs_are_not_installed_says_so(bare: Shop) -> None:
    registers(bare.folder, "polish = polishing:polish")
    (bare.folder / "polishing.py").write_text("import a_package_that_is_not_there\n")

    ran = bare.process("polish", env=bare.environment())

    assert ran.returncode == 2
    assert "pip install 'milepost[polish]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_defect_is_named_as_one_and_shows_where_it_is(bare: Shop) -> None:
    registers(bare.folder, "crash = crashing:crash")
    (bare.folder / "crashing.py").write_text("import click\n@click.command()\ndef crash():\n    {}['x']\n")

    ran = bare.process("crash", env=bare.environment())

    assert ran.returncode == exits.DEFECT
    assert "KeyError" in ran.stderr
    assert "please report it" in ran.stderr


def test_the_version_is_the_packages_own(bare: Shop) -> None:
    assert bare.ok("--version") == f"milepost {milepost.__version__}\n"
