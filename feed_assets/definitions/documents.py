"""Find the documents in the text of one file, and insert, replace or remove one.

Everything outside the edited document stays the same, byte for byte: comments, markers, line ends.

The record of definitions is about what people write, so digests are of documents as written. A rotated secret, or a
folder with another name on another machine, makes no new version, and no secret of the environment gets into the
record.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.loading.bundles import ParsedFile
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.interpolation import Values
from feed_assets.log.definitions.records import DefinitionVersion, DocumentFormat

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
    lines = _LineNumbers(text)
    return tuple(
        DocumentSpan(start=start, body_start=body, body_end=body_end, end=end, line=lines.at(body))
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


class _LineNumbers:
    def __init__(self, text: str) -> None:
        self._ends = [found.end() for found in _BREAKS.finditer(text)]

    def at(self, place: int) -> int:
        return bisect_right(self._ends, place) + 1


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
