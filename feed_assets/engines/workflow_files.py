"""Check that the code of a workflow exists, and tell which code has run.

Modules are located but not imported; URLs are checked through fsspec.
"""

import ast
import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.port import Work


def find_function_fault(path: str, root: Path, search: Sequence[str]) -> str | None:
    """Return why `package.module:function` or `file.py:function` cannot be called; None if no fault is found.

    Args:
        path: as written in `workflow.path`.
        root: the project's folder, which comes before `search`.
        search: the folders in which Python looks for modules.
    """
    where, _, function = path.rpartition(":")
    if where.endswith(".py"):
        file = root / where
        if not file.is_file():
            return f"{file} is not a file"
        return _function_fault(file, function)
    spec = find_module_spec(where, [str(root), *search])
    if spec is None:
        return f"there is no module {where!r} on the Python path or in {root}"
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return _function_fault(Path(spec.origin), function)


def find_code_digest(work: Work) -> str | None:
    """Return a digest of the file with the code of work that has run; None if its code is not in a file here."""
    where = work.path.rpartition(":")[0] if work.engine == "python" else work.path
    try:
        if work.engine == "python" and not where.endswith(".py"):
            origin = sys.modules[where].__file__ if where in sys.modules else None
            content = Path(origin).read_bytes() if origin is not None else None
        else:
            content = work.read_file(where)
    except OSError:
        return None
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def check_url(url: str, options: Mapping[str, object]) -> None:
    """Check that the file of a URL exists.

    Raises:
        ServiceError: the file does not exist, or the filesystem does not answer.
    """
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
        reason = None if filesystem.exists(path) else "it does not exist"
    except (OSError, ImportError, ValueError, TypeError) as exc:
        raise ServiceError(service=url, reason=f"it cannot be read: {exc}", next_step="Check the address.") from exc
    if reason is not None:
        raise ServiceError(service=url, reason=reason, next_step="Correct the path, or put the file there.")


def find_module_spec(name: str, search: Sequence[str]) -> ModuleSpec | None:
    """Locate a module in folders, without importing it or its packages; None if it is not there."""
    spec, places = None, list(search)
    parts = name.split(".")
    for number in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: number + 1]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return spec


def _function_fault(file: Path, function: str) -> str | None:
    """Return why a file lacks such a function: it is not valid Python, or nothing in it binds that name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError) as exc:
        return f"{file} is not Python: {exc}"
    bound = {name for node in ast.walk(tree) for name in _bound(node)}
    return None if function in bound or "*" in bound or "__getattr__" in bound else f"{file} has no {function!r}"


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
