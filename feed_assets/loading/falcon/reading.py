"""Read XML elements into plain values according to the grammar.

Each deviation from the grammar becomes a problem with its position, and reading goes on.
"""

from dataclasses import dataclass, field
from typing import Any

from feed_assets.errors import shorten
from feed_assets.issues import FieldPath
from feed_assets.loading.documents import PlainDocument, Problem
from feed_assets.loading.falcon.grammar import Element, Form, Part
from feed_assets.loading.falcon.xml_nodes import XmlElement
from feed_assets.loading.messages import alternatives, closest

MAX_PROBLEMS = 100
_BLANKS = " \t\r\n"
_LONGEST_QUOTE = 60


class TooManyProblemsError(Exception):
    """Reading has stopped because the limit of problems is reached."""


@dataclass(slots=True, kw_only=True)
class Reading(PlainDocument):
    """A document that is being read: the values so far, in which its value is made."""

    namespace: str
    values: dict[str, Any] = field(default_factory=dict)

    def note(self, code: str, message: str, remedy: str, line: int, column: int) -> None:
        """Record a problem.

        Raises:
            TooManyProblemsError: the limit of problems is reached.
        """
        if len(self.problems) >= MAX_PROBLEMS:
            message, remedy = f"there are more problems than {MAX_PROBLEMS}", "Correct the ones above first."
            self.problems.append(Problem(code="xml-more", message=message, remedy=remedy, line=line, column=column))
            raise TooManyProblemsError
        self.problems.append(Problem(code=code, message=message, remedy=remedy, line=line, column=column))

    def place(self, path: FieldPath, line: int, column: int) -> None:
        """Record the position of a value."""
        self.positions.setdefault(path, (line, column))


def read_element(reading: Reading, node: XmlElement, element: Element) -> None:
    """Read the root of a document into `reading.values`."""
    reading.place((), node.line, node.column)
    _read_content(reading, node, element, reading.values, ())


def _read_content(
    reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], path: FieldPath
) -> None:
    """Read the attributes and children of a node into `values`, the map at `path`."""
    if node.namespace != reading.namespace:
        found = f"namespace {quote(node.namespace)}" if node.namespace else "no namespace"
        remedy = f'Write xmlns="{reading.namespace}" at the root, and no other.'
        reading.note("xml-namespace", f"<{node.name}> is in {found}", remedy, node.line, node.column)
    _read_attributes(reading, node, element, values, path)
    _check_text(reading, node, element)
    _read_children(reading, node, element, values, path)


def _read_attributes(
    reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], path: FieldPath
) -> None:
    known = [each.name for each in element.attributes]
    misspelt: set[str | None] = set()
    for name, written in node.attributes.items():
        attribute = element.find_attribute(name)
        if attribute is None:
            misspelt.add(closest(name, known))
            message = f"{quote(name)} is not an attribute of <{node.name}>"
            reading.note("xml-unknown-attribute", message, _suggest(name, known), written.line, written.column)
            continue
        if attribute.blank_is_none and not written.value.strip(_BLANKS):
            continue
        if attribute.choices and written.value not in attribute.choices:
            message = f"{name} of <{node.name}> is {quote(written.value)}, not {alternatives(attribute.choices)}"
            remedy = _suggest(written.value, attribute.choices)
            reading.note("xml-value", message, remedy, written.line, written.column)
            continue
        if name != element.key or element.form is not Form.KEYED:
            values[attribute.key] = written.value
            reading.place((*path, attribute.key), written.line, written.column)
    for attribute in element.attributes:
        if attribute.required and attribute.name not in node.attributes and attribute.name not in misspelt:
            message = f"<{node.name}> has no attribute {attribute.name!r}"
            remedy = f'Add {attribute.name}="…".'
            reading.note("xml-missing-attribute", message, remedy, node.line, node.column)


def _check_text(reading: Reading, node: XmlElement, element: Element) -> None:
    is_text = element.form is Form.TEXT or (element.form is Form.LIST and element.key is None)
    written = node.text.strip(_BLANKS)
    if written and not is_text:
        message = f"<{node.name}> contains the text {quote(written)}"
        reading.note("xml-text", message, "Remove it; only elements are allowed there.", node.line, node.column)
    if is_text and element.choices and written not in element.choices:
        message = f"<{node.name}> is {quote(written)}, not {alternatives(element.choices)}"
        reading.note("xml-value", message, _suggest(written, element.choices), node.line, node.column)


def _read_children(
    reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], path: FieldPath
) -> None:
    seen: list[list[XmlElement]] = [[] for _ in element.content]
    last, is_out_of_order = 0, False
    misspelt: set[str | None] = set()
    for child in node.children:
        found = element.find_child(child.name)
        if found is None:
            misspelt.add(closest(child.name, element.child_names))
            message = f"<{shorten(child.name, _LONGEST_QUOTE)}> is not an element of <{node.name}>"
            remedy = _suggest(child.name, element.child_names)
            reading.note("xml-unknown-element", message, remedy, child.line, child.column)
            continue
        position, form = found
        if position < last and not element.any_order and not is_out_of_order:
            is_out_of_order = True
            message = f"<{child.name}> occurs too late in <{node.name}>"
            remedy = f"The order is {', '.join(element.child_names)}."
            reading.note("xml-order", message, remedy, child.line, child.column)
        last = max(last, position)
        if _is_too_many(reading, node, child, element.content[position], seen[position]):
            continue
        seen[position].append(child)
        _read_child(reading, child, form, values, path)
    for part, children in zip(element.content, seen, strict=True):
        if len(children) < part.least and misspelt.isdisjoint(each.name for each in part.elements):
            _note_missing(reading, node, element, part, len(children))


def _read_child(reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], path: FieldPath) -> None:
    """Read a child into the values of the enclosing element."""
    at = (*path, element.to) if element.to else path
    match element.form:
        case Form.INLINE:
            reading.place((*path, node.name), node.line, node.column)
            _read_content(reading, node, element, values, path)
        case Form.MAP:
            below: dict[str, Any] = {}
            values[element.to] = below
            reading.place(at, node.line, node.column)
            _read_content(reading, node, element, below, at)
        case Form.TEXT:
            before = len(reading.problems)
            _read_content(reading, node, element, {}, at)
            reading.place(at, node.line, node.column)
            written = node.text.strip(_BLANKS)
            if len(reading.problems) == before and (written or not element.blank_is_none):
                values[element.to] = written
        case Form.LIST:
            _read_item(reading, node, element, values, at)
        case Form.KEYED:
            _read_entry(reading, node, element, values, at)


def _read_item(reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], at: FieldPath) -> None:
    items: list[str] = values.setdefault(element.to, [])
    read: dict[str, Any] = {}
    _read_content(reading, node, element, read, at)
    reading.place(at, node.line, node.column)
    item = node.text.strip(_BLANKS) if element.key is None else read.get(element.key)
    if item is not None:
        reading.place((*at, len(items)), node.line, node.column)
        items.append(item)


def _read_entry(reading: Reading, node: XmlElement, element: Element, values: dict[str, Any], at: FieldPath) -> None:
    entries: dict[str, Any] = values.setdefault(element.to, {})
    reading.place(at, node.line, node.column)
    key = node.attributes.get(element.key or "")
    read: dict[str, Any] = {}
    name = key.value if key is not None else ""
    if key is not None and name in entries:
        line = reading.positions[*at, name][0]
        message = f"<{node.name}> with {element.key} {quote(name)} occurs twice, first in line {line}"
        reading.note("xml-twice", message, "Keep one of them.", key.line, key.column)
        return
    _read_content(reading, node, element, read, (*at, name))
    choices = (element.find_attribute(element.key) if element.key else None) or None
    if key is None or (choices and choices.choices and name not in choices.choices):
        return
    reading.place((*at, name), node.line, node.column)
    if element.value is None:
        entries[name] = read
    elif element.value in read:
        entries[name] = read[element.value]


def _is_too_many(reading: Reading, node: XmlElement, child: XmlElement, part: Part, seen: list[XmlElement]) -> bool:
    if part.most is None or len(seen) < part.most:
        return False
    first = seen[0]
    if first.name == child.name:
        message = f"<{child.name}> occurs twice in <{node.name}>, first in line {first.line}"
        reading.note("xml-twice", message, "Keep one of them.", child.line, child.column)
    else:
        message = f"<{node.name}> contains both <{first.name}> and <{child.name}>"
        reading.note("xml-choice", message, "Keep one of them.", child.line, child.column)
    return True


def _note_missing(reading: Reading, node: XmlElement, element: Element, part: Part, count: int) -> None:
    name = alternatives([f"<{each.name}>" for each in part.elements])
    message = f"{name} is missing in <{node.name}>"
    if part.least > 1:
        message = f"<{node.name}> contains {count} {name}; at least {part.least} are required"
    before = _before(element, part)
    remedy = f"Add it after <{before}>." if before and not element.any_order else "Add it."
    reading.note("xml-missing-element", message, remedy, node.line, node.column)


def _before(element: Element, part: Part) -> str | None:
    """Return the name of the element before a part."""
    position = element.content.index(part)
    return element.content[position - 1].elements[-1].name if position else None


def _suggest(name: str, known: tuple[str, ...] | list[str]) -> str:
    close = closest(name[:_LONGEST_QUOTE], known)
    if close:
        return f"Did you mean {close!r}?"
    return f"Known are {', '.join(known)}." if known else "Remove it."


def quote(text: str) -> str:
    """Quote a text, shortened if it is long."""
    return repr(shorten(text, _LONGEST_QUOTE))
