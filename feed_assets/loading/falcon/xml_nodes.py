"""Parse XML text into elements with the positions of elements and attributes; only elements, attributes and text.

Built on expat, which never opens anything by itself. A document type declaration ends the parsing, and thereby excludes
every entity except the five of XML. Size, depth and counts are bounded; parsing ends at the first bound exceeded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from feed_assets.loading.documents import Problem

MAX_BYTES = 1024 * 1024
"""Bytes of one document; Falcon's own documents have a few kilobytes."""

MAX_DEPTH = 40
MAX_ELEMENTS = 20_000
MAX_ATTRIBUTES = 100
"""Attributes of one element."""

_ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_FOREIGN = ("http://www.w3.org/2001/XMLSchema-instance ", "http://www.w3.org/XML/1998/namespace ")
_SEPARATOR = " "
_ATTRIBUTE = re.compile(rb"""([^\s=<>"'/]+)\s*=\s*("[^"]*"|'[^']*')""")  # name="clicks"
_TAG_NAME = re.compile(rb"<[^\s/>]+")  # <f:feed


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlAttribute:
    """The value and position of an attribute."""

    value: str
    line: int
    column: int


@dataclass(slots=True, kw_only=True)
class XmlElement:
    """An element: its name without the namespace, its position, attributes, children and text."""

    namespace: str
    name: str
    line: int
    column: int
    attributes: dict[str, XmlAttribute] = field(default_factory=dict)
    children: list["XmlElement"] = field(default_factory=list)
    text: str = ""


def read_xml(text: str) -> XmlElement | Problem:
    """Return the root element of a document, or the first problem for which it is refused."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        message = f"the document has {len(data):,} bytes, more than {MAX_BYTES:,}"
        return Problem(code="xml-too-big", message=message, remedy="Write one entity a file.", line=1, column=1)
    reader = _Reader(data)
    try:
        return reader.read()
    except _RefusedError as exc:
        return exc.problem
    except expat.ExpatError as exc:
        reason = expat.errors.messages.get(exc.code, "it is not well-formed")
        has_no_break = "\xa0" in "".join(text.splitlines()[exc.lineno - 1 : exc.lineno])  # it may be behind the last
        return Problem(
            code="xml-syntax",
            message=f"the file is not XML from here on: {reason}",
            remedy="It has no-break spaces, as copied from a web page: write blanks."
            if has_no_break
            else "Check tags, quotes and & in and above this line.",
            line=exc.lineno,
            column=exc.offset + 1,
        )


class _RefusedError(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._open: list[XmlElement] = []
        self._root: XmlElement | None = None
        self._count = 0
        self._parser = parser = expat.ParserCreate("utf-8", _SEPARATOR)
        parser.ordered_attributes = True
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.XmlDeclHandler = self._on_declaration
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.EntityDeclHandler = self._refuse_doctype
        parser.ExternalEntityRefHandler = self._refuse_doctype
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._on_text

    def read(self) -> XmlElement:
        self._parser.Parse(self._data, True)
        assert self._root is not None, "expat accepts no document without a root element"
        return self._root

    def _on_declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            self._refuse("xml-encoding", f"the document says that it is in {encoding}", "Save it as UTF-8, and say so.")

    def _refuse_doctype(self, *_: object) -> int:
        self._refuse("xml-doctype", "document types and entities are not allowed", "Remove <!DOCTYPE …>.")
        return 0

    def _on_start(self, name: str, attributes: list[str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            message = f"the document has more than {MAX_ELEMENTS:,} elements"
            self._refuse("xml-too-big", message, "Write one entity a file.")
        if len(self._open) >= MAX_DEPTH:
            self._refuse("xml-too-deep", f"elements are nested more than {MAX_DEPTH} levels deep", "Nest them less.")
        if len(attributes) > 2 * MAX_ATTRIBUTES:
            message = f"an element has more than {MAX_ATTRIBUTES} attributes"
            self._refuse("xml-too-big", message, "Remove those that are not Falcon's.")
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        namespace, _, local = name.rpartition(_SEPARATOR)
        element = XmlElement(namespace=namespace, name=local, line=line, column=column)
        pairs = zip(attributes[::2], attributes[1::2], self._places(line, column), strict=False)
        element.attributes = {
            name: XmlAttribute(value=value, line=at[0], column=at[1])
            for name, value, at in pairs
            if not name.startswith(_FOREIGN)
        }
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _on_end(self, _name: str) -> None:
        self._open.pop()

    def _on_text(self, text: str) -> None:
        self._open[-1].text += text

    def _places(self, line: int, column: int) -> Iterator[tuple[int, int]]:
        """Yield the line and column of each attribute of the tag that begins here, without namespace declarations."""
        data, last = self._data, self._parser.CurrentByteIndex
        tag = _TAG_NAME.match(data, last)
        position = tag.end() if tag else last
        while (found := _ATTRIBUTE.match(data, _after_blanks(data, position))) is not None:
            skipped = data[last : found.start()]
            line += skipped.count(b"\n")
            _, newline, after = skipped.rpartition(b"\n")
            column = len(after.decode("utf-8", "replace")) + (1 if newline else column)
            last, position = found.start(), found.end()
            if found[1] != b"xmlns" and not found[1].startswith(b"xmlns:"):
                yield line, column

    def _refuse(self, code: str, message: str, remedy: str) -> None:
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        raise _RefusedError(Problem(code=code, message=message, remedy=remedy, line=line, column=column))


def _after_blanks(data: bytes, position: int) -> int:
    while data[position : position + 1] in (b" ", b"\t", b"\r", b"\n"):
        position += 1
    return position
