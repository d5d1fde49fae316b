"""Tell where commands of Dagster find the definitions of a project."""

import tomllib
from pathlib import Path
from typing import Any


def find_pointer(root: Path) -> str | None:
    """Return the option by which commands of Dagster find the definitions of a project; None if nothing tells it.

    A `definitions.py` in the folder comes first, then the module of `[tool.dagster]`, then that of a `dg` project.
    """
    if (root / "definitions.py").is_file():
        return "-f definitions.py"
    try:
        tools: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):
        return None
    module = tools.get("dagster", {}).get("module_name")
    package = tools.get("dg", {}).get("project", {}).get("root_module")
    if module is None and package is not None:
        module = f"{package}.definitions"
    return None if module is None else f"-m {module}"
