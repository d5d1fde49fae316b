"""Definition files in a folder, a single file, or an fsspec URL of either; and the documents in the text of one, of
which one is inserted, replaced or removed.

Everything outside the edited document stays the same, byte for byte: comments, markers, line ends.

The record of definitions is about what people write, so digests are of documents as written. A rotated secret, or a
folder with another name on another machine, makes no new version, and no secret of the environment gets into the
record.
"""

import hashlib
import os
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from feed_assets.clock import SystemClock
from feed_assets.definitions.errors import DefinitionStoreError, FileRefusedError
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.loading.bundles import ParsedFile
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.entity_files import EntityFile, Values, is_entity_file, read_entity_files, stamp_files
from feed_assets.log.definitions.records import DefinitionVersion, DocumentFormat

_WHOLE_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory"})
"""Protocols that show an object whole or not at all."""

_TEMPORARY = "feed-assets-tmp"


class DefinitionFolder(ABC):
    """The location where definitions are read and written. Files are named by their path below it, with `/`.

    `read_file`, `write` and `remove` act on one file. A reader sees either the old or the new file, never a part of it.
    Writes and removals survive a crash of the machine. Only one process may write at a time; callers ensure this.

    Raises:
        FileRefusedError: a name leads out of the folder, is hidden, or is not the name of a definition file.
        DefinitionStoreError: the filesystem refused the operation.
    """

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or URL."""

    @property
    @abstractmethod
    def only_file(self) -> str | None:
        """The name of the single file that contains all definitions; None if the location is a folder."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the location exists. Writing the first file creates it."""

    @abstractmethod
    def name_of(self, shown: str) -> str:
        """Return the name of a file from its name in messages."""

    @abstractmethod
    def shown(self, name: str) -> str:
        """Return the name of a file in messages; the inverse of `name_of`."""

    _seen: tuple[object, tuple[EntityFile, ...]] = (None, ())  # replaced as a whole, since threads share it

    def read(self) -> tuple[EntityFile, ...]:
        """Read all files in their present state, under their names in messages. While none has changed, the tuple is
        the same object, and no file is opened.

        Raises:
            LocationUnreadableError: the location does not exist or cannot be read.
        """
        stamp, seen = stamp_files(self.location, SystemClock().now()), self._seen
        if stamp is None or stamp != seen[0]:
            files = read_entity_files(self.location)
            self._seen = seen = (stamp, seen[1] if files == seen[1] else files)
        return seen[1]

    def read_file(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        with self._translated(name):
            return self._read(self._checked(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole, replacing the old one."""
        with self._translated(name):
            self._write(self._checked(name), content)

    def remove(self, name: str) -> None:
        """Remove a file. Has no effect if the file does not exist."""
        with self._translated(name):
            self._remove(self._checked(name))

    def owner_of(self, name: str) -> str | None:  # noqa: ARG002
        """Return the name of the user who owns a file; None if the filesystem has no owners."""
        return None

    def _checked(self, name: str) -> str:
        parts = name.split("/")
        if self.only_file is not None and name != self.only_file:
            raise FileRefusedError(location=self.location, file=name, reason="the definitions are in a single file")
        if "" in parts or "\0" in name or "\\" in name:
            raise FileRefusedError(location=self.location, file=name, reason="it is not a path below a folder")
        if any(part.startswith(".") for part in parts):
            raise FileRefusedError(location=self.location, file=name, reason="a part of it begins with a dot")
        if not is_entity_file(name):
            raise FileRefusedError(location=self.location, file=name, reason="it has another suffix")
        return name

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ImportError, ValueError) as exc:
            raise DefinitionStoreError(
                location=self.location,
                reason=f"the file {name!r} cannot be used: {exc}",
                next_step="Check the address, the permissions and the free space.",
            ) from exc

    @abstractmethod
    def _read(self, name: str) -> bytes | None: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...


def open_folder(location: str | Path) -> DefinitionFolder:
    """Return the folder of a path or an fsspec URL. Nothing is read yet, and it need not exist.

    >>> open_folder("/etc/entities").shown("feed/clicks.yaml")
    '/etc/entities/feed/clicks.yaml'
    """
    text = str(location)
    return _Remote(text) if "://" in text else _Local(Path(text))


class _Local(DefinitionFolder):
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._is_file = self._path.is_file() or (is_entity_file(self._path.name) and not self._path.exists())
        self._root = self._path.parent if self._is_file else self._path

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def only_file(self) -> str | None:
        return self._path.name if self._is_file else None

    def exists(self) -> bool:
        return self._path.exists()

    def name_of(self, shown: str) -> str:
        root = f"{self._root}/"
        if shown.startswith(root):
            return shown.removeprefix(root)
        return Path(shown).absolute().relative_to(self._root).as_posix()

    def shown(self, name: str) -> str:
        file, here = self._root / name, Path.cwd()
        return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)

    def owner_of(self, name: str) -> str | None:
        try:
            return (self._root / name).owner()
        except (OSError, KeyError, NotImplementedError):
            return None

    def _read(self, name: str) -> bytes | None:
        try:
            return self._inside(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, name: str, content: bytes) -> None:
        file = self._inside(name)
        _make_folder(file.parent)
        replace_file(file, content)

    def _remove(self, name: str) -> None:
        file = self._inside(name)
        _temporary_of(file).unlink(missing_ok=True)
        with suppress(FileNotFoundError, NotADirectoryError):
            file.unlink()
            _sync_folder(file.parent)

    def _inside(self, name: str) -> Path:
        """Return the target of a link, which must be inside the folder; otherwise the path of the file itself."""
        file = (self._root / name).resolve()
        if not file.is_relative_to(self._root.resolve()):
            raise FileRefusedError(location=self.location, file=name, reason="a link leads it out of the folder")
        return file


def replace_file(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, with the rights that it has had, so that it survives a crash of the machine."""
    temporary = _temporary_of(file)
    with temporary.open("wb") as stream:
        with suppress(FileNotFoundError):
            os.fchmod(stream.fileno(), file.stat().st_mode & 0o7777)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
    _sync_folder(file.parent)


def _temporary_of(file: Path) -> Path:
    """Return the temporary name of a file; a fixed one, so that the next write overwrites the rest of a broken one."""
    return file.with_name(f".{file.name}.{_TEMPORARY}")


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Remote(DefinitionFolder):
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._is_file = is_entity_file(PurePosixPath(self._url).name) and not self._fs().isdir(self._path())
        self._base = self._url.rpartition("/")[0] if self._is_file else self._url

    @property
    def location(self) -> str:
        return self._url

    @property
    def only_file(self) -> str | None:
        return PurePosixPath(self._url).name if self._is_file else None

    def exists(self) -> bool:
        fs = self._fs()
        fs.invalidate_cache()
        return bool(fs.exists(self._path()))

    def name_of(self, shown: str) -> str:
        return shown.removeprefix(f"{self._base}/")

    def shown(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _read(self, name: str) -> bytes | None:
        fs = self._fs()
        fs.invalidate_cache()
        try:
            content: bytes = fs.cat_file(self._below(name))
        except FileNotFoundError:
            return None
        return content

    def _write(self, name: str, content: bytes) -> None:
        fs, path = self._fs(), self._below(name)
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        if protocols & _WHOLE_OBJECTS:
            fs.pipe_file(path, content)
            return
        folder, _, base = path.rpartition("/")
        temporary = f"{folder}/.{base}.{_TEMPORARY}"
        fs.makedirs(folder, exist_ok=True)
        fs.pipe_file(temporary, content)
        fs.mv(temporary, path)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs().rm_file(self._below(name))

    def _fs(self) -> Any:
        import fsspec  # imported here because only URLs need it

        return fsspec.core.url_to_fs(self._url)[0]

    def _path(self) -> str:
        import fsspec

        path: str = fsspec.core.url_to_fs(self._url)[1]
        return path

    def _below(self, name: str) -> str:
        root = self._path().rpartition("/")[0] if self._is_file else self._path().rstrip("/")
        return f"{root}/{name}"


_BREAK = "\n\r\x85\u2028\u2029"
_MARKER = re.compile(rf"(?:\A\ufeff?|(?<=[{_BREAK}]))(---|\.\.\.)(?=[ \t{_BREAK}]|\Z)")  # "---" and "..." in column 1
_LINE = re.compile(rf"[^{_BREAK}]*(?:\r\n|[{_BREAK}]|\Z)")
_BREAKS = re.compile(rf"\r\n|[{_BREAK}]")
_DIRECTIVE = re.compile(rf"(?:\A\ufeff?|(?<=[{_BREAK}]))(%)")  # "%YAML 1.1"
_SAYS_NOTHING = re.compile(r"[ \t]*(?:#.*)?|%.*")  # "  # a comment", "%YAML 1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSpan:
    """The span of a document in its file, with and without its markers; `line` is the first line of the body."""

    start: int
    body_start: int
    body_end: int
    end: int
    line: int


def format_of(file: str) -> DocumentFormat:
    """Return the format of a file's documents.

    >>> format_of("feed/clicks.xml").value
    'xml'
    """
    return DocumentFormat.XML if file.endswith(".xml") else DocumentFormat.YAML


def split_documents(text: str) -> tuple[DocumentSpan, ...]:
    r"""Return the documents of a YAML text, in order.

    The YAML need not be correct: a marker in column 1 always counts as a marker.

    >>> text = "# all of it\n---\nkind: feed\n---\nkind: process\n"
    >>> [(span.line, text[span.body_start:span.body_end]) for span in split_documents(text)]
    [(3, 'kind: feed\n'), (5, 'kind: process\n')]
    """
    ends = [found.end() for found in _BREAKS.finditer(text)]
    return tuple(
        DocumentSpan(start=start, body_start=body, body_end=body_end, end=end, line=bisect_right(ends, body) + 1)
        for start, body, body_end, end in _spans(text)
    )


def find_documents(file: ParsedFile, text: str) -> Mapping[EntityKey, DocumentSpan]:
    """Return the positions of a file's entities; for an entity declared twice, the first position."""
    if format_of(file.name) is DocumentFormat.XML:
        whole = DocumentSpan(start=0, body_start=0, body_end=len(text), end=len(text), line=1)
        return {document.key: whole for document in file.documents if document.key is not None}
    spans = split_documents(text)
    first_lines = [span.line for span in spans]
    found: dict[EntityKey, DocumentSpan] = {}
    for document in file.documents:
        line = document.sources.locate().line
        if document.key is not None and line is not None and (number := bisect_right(first_lines, line)) > 0:
            found.setdefault(document.key, spans[number - 1])
    return found


def only_document(text: str, format: DocumentFormat) -> str:  # noqa: A002
    r"""Return the body of a text that contains one document.

    >>> only_document("--- # clicks\nkind: feed\n", DocumentFormat.YAML)
    'kind: feed\n'

    Raises:
        DefinitionStoreError: the text contains no document or several.
    """
    if format is DocumentFormat.XML:
        return text
    bodies = [text[span.body_start : span.body_end] for span in split_documents(text)]
    bodies = [body for body in bodies if _says_something(body)]
    if len(bodies) != 1:
        raise DefinitionStoreError(
            location="the text of a definition",
            reason=f"it contains {len(bodies) or 'no'} documents",
            next_step="Give exactly one document.",
        )
    return bodies[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """A new body for the document at `span`. A span of None appends the body to the file; a body of None removes the
    document.
    """

    span: DocumentSpan | None
    body: str | None


def edit_text(text: str | None, splices: Iterable[Splice]) -> str | None:
    r"""Return the text of a file after the splices; None if nothing is left. The spans refer to `text`.

    >>> edit_text("kind: feed\n", [Splice(span=None, body="kind: process\n")])
    'kind: feed\n---\nkind: process\n'
    """
    text = text or ""
    splices = list(splices)
    placed = [(splice.span, splice.body) for splice in splices if splice.span is not None]
    for span, body in sorted(placed, key=lambda each: each[0].start, reverse=True):
        text = _spliced(text, span, body)
    for splice in splices:
        if splice.span is None and splice.body is not None:
            marker = "---\n" if _says_something(text, markers=True) else ""
            text = _ended(text) + marker + splice.body
    return text if _says_something(text, markers=True) else None


def _spliced(text: str, span: DocumentSpan, body: str | None) -> str:
    if body is None:
        return text[: span.start] + text[span.end :]
    before, after = text[: span.body_start], text[span.body_end :]
    if before and before[-1] not in _BREAK and before != "\ufeff":
        before += "\n"  # the body was on the line of its marker
    return before + (_ended(body) if after else body) + after


def _ended(text: str) -> str:
    return text if not text or text[-1] in _BREAK or text == "\ufeff" else text + "\n"


def _spans(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, body start, body end, end) of each document; without a marker, only if it has content."""
    first = 1 if text.startswith("\ufeff") else 0
    markers = [(found.start(1), found.end(1)) for found in _MARKER.finditer(text)]
    bounds = [(first, first), *markers, (len(text), len(text)), (len(text), len(text))]
    free = first  # from here on, nothing belongs to an earlier document
    for (start, marker_end), (stop, stop_end), (following, _) in zip(bounds, bounds[1:], bounds[2:], strict=False):
        body = min(_body_start(text, marker_end) if start < marker_end else first, stop)
        end = stop
        if text[stop:stop_end] == "...":
            after = _next_line(text, stop_end)
            if not _says_something(text[after:following]):
                end = after  # else the marker stays, to separate a document without marker from the text above
        if text[start:marker_end] == "---":
            directives = _DIRECTIVE.search(text, free, start)
            yield directives.start(1) if directives else start, body, stop, end
            free = end
        elif _says_something(text[body:stop]):
            yield body, body, stop, end
            free = end


def _body_start(text: str, marker_end: int) -> int:
    """Return the start of the next line if only a comment follows the marker; else the position after the marker."""
    end = _next_line(text, marker_end)
    rest = text[marker_end:end].strip()
    return end if not rest or rest.startswith("#") else marker_end + 1


def _next_line(text: str, place: int) -> int:
    found = _LINE.match(text, place)
    return found.end() if found else len(text)


def _says_something(text: str, *, markers: bool = False) -> bool:
    """Return whether the text has more than blanks, comments and directives; with `markers`, more than blanks and
    markers.
    """
    if markers:
        return bool(_MARKER.sub("", text).strip("\ufeff \t" + _BREAK))
    return any(_SAYS_NOTHING.fullmatch(line) is None for line in _BREAKS.split(text))


def digest_as_written(entity: AnyEntity, text: str, format: DocumentFormat) -> str:  # noqa: A002
    """Return the sha256 of a document in hexadecimal, independent of the values of its references.

    Without references, this is the digest of the entity. `text` is the document that `entity` was read from.
    """
    if not has_references(entity.key[0], text):
        return entity_digest(entity)
    written = find_entity(text, format)
    if written is None:  # valid only with its values: "storage: ${STORAGE}"
        return hashlib.sha256(f"as written\0{text}".encode()).hexdigest()
    return entity_digest(written)


def has_references(kind: str, text: str) -> bool:
    """Return whether a document of this kind may refer to outside values."""
    return "${env:" in text or (kind == Kind.CLUSTER and "${" in text)


def find_entity(text: str, format: DocumentFormat, values: Values | None = None) -> AnyEntity | None:  # noqa: A002
    """Return the entity of one document; None if it cannot be read. Without `values`, references stay as written."""
    documents = list(iter_entities(f"definition.{format.value}", text, values))
    return documents[0].entity if len(documents) == 1 else None


def find_version_entity(version: DefinitionVersion, values: Values | None = None) -> AnyEntity | None:
    """Return the entity of a version: as written, or with the values of its references if `values` are given.

    None for a deletion, and if this release or these values cannot read it.
    """
    return None if version.text is None else find_entity(version.text, version.format, values)
