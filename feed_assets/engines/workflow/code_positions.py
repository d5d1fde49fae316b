"""Find the file and line of a workflow's code, without importing it: the files of a location are read once."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from feed_assets.engines.workflow.python_code import find_module

_DEFINITION = re.compile(rb"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)  # async def clean_up(


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePosition:
    """A file with code. `line` counts from 1; None for a file that is the code as a whole, or if it is unknown."""

    file: Path
    line: int | None = None


@dataclass(frozen=True, slots=True)
class CodeFinder:
    """Finds code of workflows below `root`, the project's folder, or on the Python path."""

    root: Path
    _modules: dict[str, Path | None] = field(default_factory=dict)
    _lines: dict[Path, dict[str, int]] = field(default_factory=dict)

    def find(self, engine: str, path: str) -> CodePosition | None:
        """Return where the code of a workflow is; None if it is not in a file here.

        Args:
            engine: the engine that reads `path`.
            path: as written in `workflow.path`: `package.module:function`, `file.py:function`, `report.sql`.
        """
        if engine != "python":
            file = self.root / path
            return CodePosition(file=file) if "://" not in path and file.is_file() else None
        where, _, function = path.rpartition(":")
        module = self._find_module(where)
        return None if module is None else CodePosition(file=module, line=self._lines_of(module).get(function))

    def _find_module(self, where: str) -> Path | None:
        if where not in self._modules:
            self._modules[where] = self._locate(where)
        return self._modules[where]

    def _locate(self, where: str) -> Path | None:
        if where.endswith(".py"):
            return self.root / where if (self.root / where).is_file() else None
        found = find_module(where, [str(self.root), *sys.path]) if where else None
        return found if isinstance(found, Path) else None

    def _lines_of(self, file: Path) -> dict[str, int]:
        """Return the lines of the functions and classes of a module."""
        if file not in self._lines:
            try:
                content = file.read_bytes()
            except OSError:
                content = b""
            found = _DEFINITION.finditer(content)
            self._lines[file] = {each[1].decode(): content.count(b"\n", 0, each.start()) + 1 for each in found}
        return self._lines[file]
