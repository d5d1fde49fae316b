"""Turn Falcon XML into a plain document with the values of our models, each with its line."""

from collections import Counter

from feed_assets.entities.common import Kind
from feed_assets.errors import shorten
from feed_assets.loading.documents import Note, NoteKind, PlainDocument, Problem
from feed_assets.loading.falcon.grammar import SCHEMAS, namespace_of
from feed_assets.loading.falcon.reading import Reading, TooManyProblemsError, quote, read_element
from feed_assets.loading.falcon.to_entities import convert
from feed_assets.loading.falcon.xml_nodes import XmlElement, read_xml


def read_falcon(text: str) -> PlainDocument:
    """Return the document of a text. Every mistake becomes a problem with its position."""
    root = read_xml(text)
    if isinstance(root, Problem):
        return PlainDocument(line=root.line, problems=[root], positions={(): (root.line, root.column)})
    kind = next((each for each in Kind if each.value == root.name), None)
    if kind is None:
        problem = Problem(
            code="xml-root",
            message=f"<{shorten(root.name, 60)}> is not a document of Falcon",
            remedy=f"Documents are {', '.join(f'<{each.value}>' for each in Kind)}.",
            line=root.line,
            column=root.column,
        )
        return PlainDocument(line=root.line, problems=[problem], positions={(): (root.line, root.column)})
    return _document(root, kind)


def _document(root: XmlElement, kind: Kind) -> PlainDocument:
    reading = Reading(line=root.line, namespace=namespace_of(kind), is_presence_checked=True)
    wrong = root.namespace
    if wrong != reading.namespace:
        written = f"in namespace {quote(wrong)}" if wrong else "in no namespace"
        message, remedy = f"<{root.name}> is {written}", f'Write <{root.name} xmlns="{reading.namespace}" …>.'
        reading.note("xml-namespace", message, remedy, root.line, root.column)
        reading.namespace = wrong  # reported once; the rest is read as if the namespace were right
    try:
        read_element(reading, root, SCHEMAS[kind])
        reading.notes += [_carried(root), *convert(kind, reading)]
    except TooManyProblemsError:
        pass
    reading.value = {**reading.values, "kind": kind.value}
    return reading


def _carried(root: XmlElement) -> Note:
    """Return a note that counts the elements of the document."""
    counts = Counter[str]()
    for child in root.children:
        counts[child.name] += len(child.children) or 1
    parts = [name if count == 1 else f"{name} ({count})" for name, count in counts.items()]
    return Note(kind=NoteKind.CARRIED, message=", ".join(parts) or "the name", line=root.line)
