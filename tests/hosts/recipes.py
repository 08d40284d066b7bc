"""Programs of the pages, taken from there: what is tested is what people copy."""

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.crash.world import here
from tests.docs.pages import blocks


def recipe(name: str) -> ModuleType:
    """Import a recipe of docs/recipes.md, in the folder of this process."""
    return program("docs/recipes.md", name, here())


def program(page: str, name: str, folder: Path) -> ModuleType:
    """Save a block of a page in a folder, as it stands there, and import it."""
    (body,) = [block.body for block in blocks(page) if block.name == f"hosts/{name}.py"]
    file = folder / f"{name}.py"
    file.write_text(body, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
