"""Read the entity files of a folder, a file or an fsspec URL, and compute the digest of their content before parsing.
`${env:NAME}` in all entities and `${NAME}` in clusters stand for outside values, which replace them before validation.

Every load of a location needs this much. It needs neither a parser nor the entity models. Every other `${…}` (paths,
expressions) is left alone; `$${` is a literal `${`.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from feed_assets.issues import FieldPath
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.masking import is_name_of_credential, remember, remember_unnamed
from feed_assets.settings import ENV_VARIABLES, FILE_NAME, Settings

_REFERENCE = re.compile(r"(\$?)\$\{(env:)?([A-Za-z_][A-Za-z0-9_]*)\}")  # ${env:SECRET}, ${DATA_ROOT}, $${literal}
_SETTLED_SECONDS = 2  # the coarsest times of filesystems


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingValue:
    """A reference without a value: its path, its name, and whether only an environment variable can supply it."""

    path: FieldPath
    name: str
    is_environment: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The sources of values: first the variables of the settings, then the environment.

    `settings_file` describes the file of the variables.
    """

    variables: Mapping[str, str]
    environ: Mapping[str, str]
    settings_file: str = FILE_NAME

    def find(self, name: str, *, is_environment: bool) -> str | None:
        """Return the value of `${env:name}` or `${name}`; None if there is none.

        It is a secret from now on if it is the first, or has a name like that of a password.
        """
        is_secret = is_environment or is_name_of_credential(name)
        if not is_environment and (found := self.variables.get(name)) is not None:
            if is_secret:
                remember_unnamed(found)
            return found
        found = self.environ.get(name)
        if is_secret and found is not None:
            remember(found, name)
        return found

    def hold(self, used: Iterable[tuple[str, str | None]]) -> bool:
        """Return whether references, as `iter_used` yields them, still have the same values."""
        known = ((name.removeprefix("env:"), name.startswith("env:"), value) for name, value in used)
        return all(self.find(name, is_environment=is_environment) == value for name, is_environment, value in known)

    def places_tried(self, name: str) -> tuple[str, ...]:
        """Return where the value of `${name}` is looked for, the strongest first."""
        in_settings = (f"{ENV_VARIABLES}{name} in the environment", f"variables in {self.settings_file}")
        return (*in_settings, f"{name} in the environment")

    def iter_used(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Yield each reference of the text with its value, for digests.

        May include references that feed-assets does not resolve.
        """
        found = {(reference[2] or "", reference[3]) for reference in _REFERENCE.finditer(text)}
        for prefix, name in sorted(found):
            yield f"{prefix}{name}", self.find(name, is_environment=bool(prefix))


def values_of(settings: Settings, environ: Mapping[str, str] | None = None) -> Values:
    """Return the values of references by the settings; None is the environment of this process."""
    file = str(settings.file) if settings.file else f"{FILE_NAME} (not found in {settings.root} and above)"
    environ = os.environ if environ is None else environ
    return Values(variables=settings.cluster_variables, environ=environ, settings_file=file)


def escape_references(value: Any, *, with_variables: bool) -> Any:
    """Escape plain values so that `Interpolation` returns them unchanged.

    >>> escape_references({"storage": "file:///${ROOT}"}, with_variables=True)
    {'storage': 'file:///$${ROOT}'}
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: f"${found[0]}" if found[2] or with_variables else found[0], value)
    if isinstance(value, dict):
        return {key: escape_references(item, with_variables=with_variables) for key, item in value.items()}
    if isinstance(value, list):
        return [escape_references(item, with_variables=with_variables) for item in value]
    return value


class Interpolation:
    """Replacement of references in the plain values of one document.

    Records the references without a value.

    >>> filled = Interpolation(Values(variables={"ROOT": "/data"}, environ={}), with_variables=True)
    >>> filled.fill({"storage": "file://${ROOT}", "data": "$${YEAR}"})
    {'storage': 'file:///data', 'data': '${YEAR}'}
    """

    def __init__(self, values: Values, *, with_variables: bool) -> None:
        self._values = values
        self._with_variables = with_variables
        self._missing: dict[MissingValue, None] = {}

    @property
    def missing(self) -> tuple[MissingValue, ...]:
        """The references without a value, each once per path."""
        return tuple(self._missing)

    def fill(self, value: object, path: FieldPath = ()) -> object:
        """Return a copy of plain values with references replaced. Keys are not changed."""
        if isinstance(value, str):
            return self._fill_text(value, path) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, position)) for position, item in enumerate(value)]
        return value

    def _fill_text(self, text: str, path: FieldPath) -> str:
        def value_of(found: re.Match[str]) -> str:
            escaped, prefix, name = found.groups()
            if not prefix and not self._with_variables:
                return found.group()
            if escaped:
                return found.group()[1:]
            known = self._values.find(name, is_environment=bool(prefix))
            if known is None:
                missing = MissingValue(path=path, name=name, is_environment=bool(prefix))
                self._missing.setdefault(missing)
            return known or ""

        return _REFERENCE.sub(value_of, text)


MAX_FILE_BYTES = 8 * 1024 * 1024
"""Largest file that is read whole, in bytes."""
_SUFFIXES = (".yaml", ".yml", ".xml")
_SETTINGS = (FILE_NAME, "dagster.yaml")

References: TypeAlias = tuple[tuple[str, str | None], ...]
"""Names of outside values that a file refers to, each with its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFile:
    """A file: its name in messages, and its content or the reason why it could not be read."""

    name: str
    content: bytes
    problem: str | None = None


def read_entity_files(location: str | Path) -> tuple[EntityFile, ...]:
    """Return the entity files of a location, sorted by name.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    text = str(location)
    try:
        if "://" in text:
            return tuple(_read_remote(text))
        return tuple(_read_local(Path(text)))
    except FileNotFoundError as exc:
        raise LocationUnreadableError(
            location=text,
            reason="there is no such file or folder",
            next_step="Create it, or correct the setting 'entities'.",
        ) from exc
    except (OSError, ImportError, ValueError) as exc:
        raise LocationUnreadableError(
            location=text,
            reason=f"it cannot be read: {exc}",
            next_step="Check the address, the rights and the installed packages.",
        ) from exc


def read_declared_files(
    settings: Settings, read: Callable[[str], tuple[EntityFile, ...]] = read_entity_files
) -> tuple[EntityFile, ...]:
    """Return the entity files of the location that the settings name, as they are read.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read; lists where the setting was looked for.
    """
    try:
        return read(settings.entities_location)
    except LocationUnreadableError as exc:
        tried = f"The setting 'entities' is {settings.entities!r}, from {settings.origin_of('entities')}; "
        tried += f"tried in this order: {', '.join(settings.tried)}."
        raise LocationUnreadableError(
            location=exc.location, reason=exc.reason, next_step=f"{exc.next_step} {tried}"
        ) from exc


def stamp_files(location: str, now: datetime) -> tuple[object, ...] | None:
    """Return what stays the same while no file of a folder changes; much cheaper than the contents of thousands.

    None if the times of the files cannot tell: of a URL or a single file, or so soon after a change that another one
    may have the same time.
    """
    if "://" in location or not Path(location).is_dir():
        return None
    try:
        found = sorted(_iter_stamps(location))
    except OSError:
        return None
    newest = max((max(modified, changed) for _, _, _, modified, changed in found), default=0)
    is_settled = newest < (now.timestamp() - _SETTLED_SECONDS) * 10**9
    return tuple(found) if is_settled else None


def _iter_stamps(folder: str) -> Iterator[tuple[str, int, int, int, int]]:
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                if not each.name.startswith("."):
                    yield from _iter_stamps(each.path)
            elif is_entity_file(each.name):
                seen = each.stat()
                yield each.path, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def digest_files(files: Iterable[EntityFile], values: Values) -> str:
    """Return the sha256 of files and of the values they refer to. Needs no parsing, so a cache can be asked first."""
    return digest_used_files((file, references_of(file, values)) for file in files)


def digest_used_files(files: Iterable[tuple[EntityFile, References]]) -> str:
    """Return `digest_files` of files whose references are already known."""
    digest = hashlib.sha256(b"1")
    for file, references in files:
        digest.update(f"\0{file.name}\0{len(file.content)}\0".encode())
        digest.update(file.content if file.problem is None else f"\0{file.problem}".encode())
        for name, value in references:
            digest.update(f"\0{name}={value!r}".encode())
    return digest.hexdigest()


def references_of(file: EntityFile, values: Values) -> References:
    """Return the references of a file and their values. May include references that feed-assets does not resolve."""
    if b"${" not in file.content:
        return ()
    return tuple(values.iter_used(file.content.decode("utf-8", "replace")))


def _read_local(location: Path) -> Iterator[EntityFile]:
    if location.is_file():
        yield EntityFile(name=display_name(location), content=_read_start(location))
        return
    if not location.is_dir():
        raise FileNotFoundError(location)
    shown = display_name(location).rstrip("/")
    for below in sorted(_walk(location)):
        name = "/".join(below if shown == "." else (shown, *below))
        path = location.joinpath(*below)
        try:
            yield EntityFile(name=name, content=_read_start(path))
        except OSError as exc:
            if path.is_symlink() or not isinstance(exc, FileNotFoundError):  # else removed after the listing
                yield EntityFile(name=name, content=b"", problem=exc.strerror or type(exc).__name__)


def _read_start(file: Path) -> bytes:
    """Read a file; of a file that is too big, read just enough to show that."""
    with file.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def _walk(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the path of each file below the folder, as its parts."""
    for directory, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        parts = Path(directory).relative_to(folder).parts
        for name in names:
            path = Path(directory, name)
            if is_entity_file(name) and (path.is_file() or path.is_symlink()):
                yield (*parts, name)


def _raise(error: OSError) -> None:
    raise error


def is_entity_file(name: str) -> bool:
    """Return whether files of this name (without folders) are read."""
    return name.endswith(_SUFFIXES) and not name.startswith(".") and name not in _SETTINGS


def _read_limit(size: int | None) -> int | None:
    """Return the offset at which reading stops; a file that is too big is not read whole."""
    return MAX_FILE_BYTES + 1 if size is not None and size > MAX_FILE_BYTES else None


def display_name(file: Path) -> str:
    """Return the name of a file relative to the working directory, if the file is below it."""
    absolute, here = file.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(file)


def _read_remote(url: str) -> Iterator[EntityFile]:
    import fsspec  # imported here because only URLs need it

    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    if filesystem.isfile(root):
        size = filesystem.info(root)["size"]
        yield EntityFile(name=url, content=filesystem.cat_file(root, end=_read_limit(size)))
        return
    if not filesystem.isdir(root):
        raise FileNotFoundError(url)
    prefix = root.rstrip("/") + "/"
    found = filesystem.find(root, detail=True)
    below = {path: path.removeprefix(prefix) for path in sorted(found)}
    paths = [path for path, name in below.items() if is_entity_file(name.rpartition("/")[2]) and "/." not in f"/{name}"]
    big = [path for path in paths if _read_limit(found[path]["size"]) is not None]
    small = [path for path in paths if path not in big]
    contents = filesystem.cat(small, on_error="return") if small else {}
    contents |= {path: filesystem.cat_file(path, end=MAX_FILE_BYTES + 1) for path in big}
    for path in paths:
        content, name = contents[path], f"{url.rstrip('/')}/{below[path]}"
        if isinstance(content, bytes):
            yield EntityFile(name=name, content=content)
        elif not isinstance(content, OSError):
            raise content
        elif not isinstance(content, FileNotFoundError):  # else removed after the listing
            yield EntityFile(name=name, content=b"", problem=content.strerror or str(content))
