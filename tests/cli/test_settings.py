"""Which store and which App are meant: the option, the environment, pyproject.toml, the App's own, milepost.db here."""

from pathlib import Path

import pytest

from milepost.cli.settings import Settings, load_app, url_of
from milepost.stores.places import place_of
from tests.cli.shop_floor import Shop


def configure(folder: Path, *lines: str) -> None:
    (folder / "pyproject.toml").write_text("[tool.milepost]\n" + "\n".join(lines))


def test_the_option_wins_over_the_environment_and_that_over_the_settings_file(
    bare: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option.db", "environment.db", "file.db", "milepost.db"):
        bare.ok("init", "--store", name)
    ids = {name: bare.read("init", "--store", name)["id"] for name in ("option.db", "environment.db", "file.db")}

    assert bare.read("init")["store"] == "sqlite:///milepost.db"
    configure(bare.folder, 'store = "file.db"')
    assert bare.read("init")["id"] == ids["file.db"]
    monkeypatch.setenv("MILEPOST_STORE", "environment.db")
    assert bare.read("init")["id"] == ids["environment.db"]
    assert bare.read("init", "--store", "option.db")["id"] == ids["option.db"]


def test_the_app_is_found_by_option_environment_and_settings_file(bare: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.ok("init", "--store", "shop.db")

    assert bare.read("runs", "--app", "shop:app") == []
    assert bare.read("runs", "--app", "shop") == []
    configure(bare.folder, 'app = "shop:app"')
    assert bare.read("runs") == []
    configure(bare.folder, 'app = "nowhere:app"')
    monkeypatch.setenv("MILEPOST_APP", "shop:app")
    assert bare.read("runs") == []


def test_a_named_store_replaces_the_apps_own(bare: Shop) -> None:
    bare.ok("init", "--store", "other.db")

    run = bare.read("start", "sleeping", "--app", "shop:app", "--store", "other.db")["run"]

    assert [row["run"] for row in bare.read("runs", "--store", "other.db")] == [run]
    assert not (bare.folder / "shop.db").exists()


def test_a_store_is_a_url_or_a_path() -> None:
    assert url_of("here.db") == "sqlite:///here.db"
    assert url_of("/there/it.db") == "sqlite:////there/it.db"
    assert url_of("sqlite:///here.db") == "sqlite:///here.db"
    assert place_of("sqlite:////there/it.db") == "/there/it.db"


def test_where_nothing_names_a_store_the_command_says_how_to_name_one(bare: Shop) -> None:
    assert bare.refused("runs") == (2, "no_store_given")
    assert "--store FILE" in bare.milepost("runs").stderr


def test_milepost_db_in_the_current_folder_needs_no_name(bare: Shop) -> None:
    bare.ok("init")

    assert bare.read("runs") == []


def test_a_command_that_needs_the_code_says_how_to_name_the_app(bare: Shop) -> None:
    bare.ok("init")

    for command in (["start", "buy", '"one"'], ["worker"]):
        assert bare.refused(*command) == (2, "no_app_given")
    assert "MILEPOST_APP" in bare.milepost("worker").stderr


@pytest.mark.parametrize(
    ("module", "text", "name", "said"),
    [
        ("gone", None, "gone:app", "No module named 'gone'"),
        ("broken", "import json\n\nraise RuntimeError('no database')\n", "broken:app", "RuntimeError: no database"),
        ("crooked", "def (:\n", "crooked:app", "line 1"),
        ("leaving", "raise SystemExit(3)\n", "leaving:app", "SystemExit: 3"),
        ("empty", "", "empty:app", "has no such name"),
        ("other", "app = 'text'\n", "other:app", "a str, not a milepost.App"),
    ],
)
def test_an_app_that_cannot_be_used_is_named_in_one_line(
    bare: Shop, module: str, text: str | None, name: str, said: str
) -> None:
    if text is not None:
        (bare.folder / f"{module}.py").write_text(text)

    result = bare.milepost("worker", "--app", name)

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "[app_not_found]" in result.stderr


def test_the_line_of_the_program_that_raised_is_named(bare: Shop) -> None:
    (bare.folder / "broken.py").write_text("import json\n\n\njson.loads('{')\n")

    result = bare.milepost("worker", "--app", "broken:app")

    assert "broken.py, line 4" in result.stderr


def test_settings_that_cannot_be_read_are_named(bare: Shop) -> None:
    (bare.folder / "pyproject.toml").write_text("[tool.milepost\n")
    assert bare.refused("runs") == (2, "bad_settings")
    configure(bare.folder, "store = 3")
    assert bare.refused("runs") == (2, "bad_settings")
    (bare.folder / "pyproject.toml").write_text("tool = 3\n")
    assert bare.refused("runs") == (2, "bad_settings")


def test_the_current_folder_is_where_the_app_is_looked_for(bare: Shop) -> None:
    assert load_app("shop:app") is Settings(None, "shop:app").app


def test_a_scheme_that_this_version_does_not_have_is_refused(bare: Shop) -> None:
    code, slug = bare.refused("runs", "--store", "mysql://somewhere/db")

    assert (code, slug) == (2, "invalid_declaration")
