"""Read the code of a workflow without importing it: where its functions are, and whether they fit its inputs."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from feed_assets.engines.errors import CodeFault
from feed_assets.engines.workflow.arguments import match_arguments, read_parameters
from feed_assets.errors import find_similar

_DECLARING = "process"
"""The decorator that leaves the signature of a function as it is."""
_DEFINITION = re.compile(rb"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)  # async def clean_up(
_INSTALL = "Correct the path, or install the package where processes run."


class PythonFiles:
    """The Python files below `root`, the project's folder, and then those where Python looks for modules; each is read
    once.
    """

    def __init__(self, root: Path, search: Sequence[str] = sys.path) -> None:
        self.root = root
        self._search = search
        self._found: dict[str, Path | MissingModule | None] = {}
        self._parsed: dict[Path, ast.Module | CodeFault] = {}
        self._lines: dict[Path, dict[str, int]] = {}

    def find(self, where: str) -> "Path | MissingModule | None":
        """Return the file of a module, or at a path: `package.module`, `file.py`; None if it is not a Python file."""
        if where.endswith(".py"):
            return self.root / where
        if where not in self._found:  # many workflows are of one module
            self._found[where] = find_module(where, [str(self.root), *self._search])
        return self._found[where]

    def parse(self, file: Path) -> ast.Module | CodeFault:
        """Return the tree of a file, or why there is none."""
        if file not in self._parsed:
            self._parsed[file] = _parse(file)
        return self._parsed[file]

    def lines(self, file: Path) -> Mapping[str, int]:
        """Return the lines of the functions and classes of a file. It is not parsed, which would take much longer."""
        if file not in self._lines:
            try:
                content = file.read_bytes()
            except OSError:
                content = b""
            found = _DEFINITION.finditer(content)
            self._lines[file] = {each[1].decode(): content.count(b"\n", 0, each.start()) + 1 for each in found}
        return self._lines[file]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How a function is called: with the inputs of its process, or as a step, which may leave some out.

    Without `is_certain` there may be more inputs than those that could be read.
    """

    inputs: tuple[str, ...]
    is_step: bool = False
    is_certain: bool = True


def find_python_fault(path: str, call: Call, files: PythonFiles) -> CodeFault | None:
    """Return why a function cannot be called with its inputs; None if no fault can be read. `path` is as written in
    `workflow.path`: `package.module:function` or `file.py:function`.
    """
    where, _, function = path.rpartition(":")
    found = files.find(where)
    if isinstance(found, MissingModule):
        return _missing_module(found.name, found.places, files.root)
    return None if found is None else _find_in(found, function, call, files)


def find_frames(path: str, files: PythonFiles) -> tuple[str, ...] | None:
    """Return the names of the frames that a function returns, as far as it writes them; None if that cannot be read.

    A function that returns a mapping written as `{"name": …}` names them; one that returns nothing has none.
    """
    where, _, function = path.rpartition(":")
    found = files.find(where)
    tree = files.parse(found) if isinstance(found, Path) and found.is_file() else None
    if not isinstance(tree, ast.Module):
        return None
    named = [node for node in tree.body if function in _bound(node)]
    if len(named) != 1 or not isinstance(named[0], ast.FunctionDef):
        return None
    frames: dict[str, None] = {}
    for returned in _returned(named[0]):
        if not isinstance(returned, ast.Dict):
            return None
        for key in returned.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return None
            frames[key.value] = None
    return tuple(frames)


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what a function returns; not what functions within it return."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield node.value
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes.extend(ast.iter_child_nodes(node))


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


@dataclass(frozen=True, slots=True)
class MissingModule:
    """The first part of a module's name that is in none of the places."""

    name: str
    places: tuple[str, ...]


def find_module(name: str, search: Sequence[str]) -> Path | MissingModule | None:
    """Return the file of a module in folders, without importing it or its packages; None if it is not a Python file."""
    places, parts, origin = tuple(search), name.split("."), None
    for number in range(len(parts)):
        part = ".".join(parts[: number + 1])
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            return MissingModule(part, places)
        places, origin = tuple(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _missing_module(name: str, places: Sequence[str], root: Path) -> CodeFault:
    package, _, last = name.rpartition(".")
    siblings = {child.stem for place in places for child in _children(Path(place))}
    close = find_similar(last, sorted(siblings), n=1, cutoff=0.7)
    suggestion = f"Did you mean {f'{package}.{close[0]}'.lstrip('.')!r}?" if close else _INSTALL
    where = f"in {package}" if package else f"on the Python path or in {root}"
    return CodeFault(
        reason=f"there is no module {last!r} {where}",
        next_step=suggestion,
        is_certain=bool(package or close),
    )


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from (child for child in folder.iterdir() if child.suffix == ".py" or child.is_dir())
    except OSError:
        return


def _find_in(file: Path, function: str, call: Call, files: PythonFiles) -> CodeFault | None:
    tree = files.parse(file)
    if isinstance(tree, CodeFault):
        return tree
    bound = {name for node in ast.walk(tree) for name in _bound(node)}
    if function not in bound:
        if "*" in bound or "__getattr__" in bound:
            return None
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        close = find_similar(function, functions, n=1)
        offered = f"Its functions are {', '.join(functions)}." if functions else "Write it there, or correct the path."
        return CodeFault(
            reason=f"{file} has no function {function!r}",
            next_step=f"Did you mean {close[0]!r}?" if close else offered,
        )
    named = [node for node in tree.body if function in _bound(node)]
    if len(named) != 1 or not isinstance(named[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    found = named[0]
    if any(_name_of(decorator) != _DECLARING for decorator in found.decorator_list):
        return None
    arguments = match_arguments(read_parameters(found), call.inputs, is_free=call.is_step)
    if not arguments.faults:
        return None
    return CodeFault(
        reason=f"{function} does not match the inputs: {'; '.join(arguments.faults)}",
        next_step=arguments.next_step,
        file=file,
        line=found.lineno,
        is_certain=call.is_certain,
    )


def _parse(file: Path) -> ast.Module | CodeFault:
    try:
        return ast.parse(file.read_bytes())
    except SyntaxError as exc:
        reason, line = f"it is not Python: {exc.msg}", exc.lineno
    except (ValueError, OSError) as exc:
        reason, line = f"it cannot be read as Python: {exc}", None
    return CodeFault(reason=reason, next_step="Correct the file.", file=file, line=line)


def _name_of(decorator: ast.expr) -> str | None:
    """Return the last name of a decorator: `process` of `@feed_assets.process(...)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    match called:
        case ast.Name():
            return called.id
        case ast.Attribute():
            return called.attr
        case _:
            return None


def _bound(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name for alias in node.names]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case _:
            return []


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePosition:
    """A file with code. `line` counts from 1; None for a file that is the code as a whole, or if it is unknown."""

    file: Path
    line: int | None = None


def find_code(engine: str, path: str, files: PythonFiles) -> CodePosition | None:
    """Return where the code of a workflow is, as written in `workflow.path`; None if it is not in a file here."""
    if engine != "python":
        file = files.root / path
        return CodePosition(file=file) if "://" not in path and file.is_file() else None
    where, _, function = path.rpartition(":")
    found = files.find(where) if where else None
    if not isinstance(found, Path) or not found.is_file():
        return None
    return CodePosition(file=found, line=files.lines(found).get(function))
