"""The data structures of the grammar of Falcon's documents, with lookups.

Each element lists its children and attributes, and the key of its value in our models. One table thus serves reading,
checking, writing and documentation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Form(StrEnum):
    """How the value of an element is built; `to` is its key in the map of the enclosing element.

    INLINE: attributes and children go into the enclosing map. MAP: they form a map of their own at `to`. TEXT: the text
    of the element. LIST: one more item of the list at `to`, either the attribute `key` or the text. KEYED: one more
    entry of the map at `to`, under the attribute `key`: a map, or only the attribute `value`. FIELD: only the attribute
    `value`.
    """

    INLINE = "inline"
    MAP = "map"
    TEXT = "text"
    LIST = "list"
    KEYED = "keyed"
    FIELD = "field"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute and the key of its value; `default` is the value that Falcon assumes without it.

    A blank value means none if `blank_is_none` is set.
    """

    name: str
    to: str | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    default: str | None = None
    blank_is_none: bool = False

    @property
    def key(self) -> str:
        """The key of the value."""
        return self.to or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One position in the sequence of children: an element, or a choice of one among several."""

    elements: tuple["Element", ...]
    least: int = 0
    most: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element; `content` is the sequence of its children, in any order only if `any_order` is set.

    A blank text means none if `blank_is_none` is set.
    """

    name: str
    form: Form = Form.MAP
    to: str = ""
    key: str | None = None
    value: str | None = None
    attributes: tuple[Attribute, ...] = ()
    content: tuple[Part, ...] = ()
    any_order: bool = False
    choices: tuple[str, ...] = ()
    blank_is_none: bool = False
    _places: dict[str, tuple[int, "Element"]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for position, part in enumerate(self.content):
            self._places.update({element.name: (position, element) for element in part.elements})

    @property
    def child_names(self) -> tuple[str, ...]:
        """The names of the children, in order."""
        return tuple(element.name for part in self.content for element in part.elements)

    def find_child(self, name: str) -> tuple[int, "Element"] | None:
        """Return the named child with the position of its part in `content`; None if there is none."""
        return self._places.get(name)

    def find_attribute(self, name: str) -> Attribute | None:
        """Return the attribute of this name; None if there is none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def iter_paths(self, above: str = "") -> Iterator[str]:
        """Yield every element and attribute below this one, as paths.

        >>> list(Element(name="a", content=(one(text("b")),), attributes=(optional("c"),)).iter_paths())
        ['a', 'a@c', 'a/b']
        """
        path = f"{above}/{self.name}" if above else self.name
        yield path
        for attribute in self.attributes:
            yield f"{path}@{attribute.name}"
        for part in self.content:
            for element in part.elements:
                yield from element.iter_paths(path)


def one(*elements: Element) -> Part:
    """Return a part that must occur exactly once: an element, or one of a choice."""
    return Part(elements=elements, least=1)


def maybe(*elements: Element) -> Part:
    """Return a part that may occur once: an element, or one of a choice."""
    return Part(elements=elements)


def many(element: Element, least: int = 1) -> Part:
    """Return a part whose element occurs at least `least` times."""
    return Part(elements=(element,), least=least, most=None)


def text(name: str, to: str | None = None, choices: tuple[str, ...] = (), *, blank_is_none: bool = False) -> Element:
    """Return an element that contains only text."""
    return Element(name=name, form=Form.TEXT, to=to or name, choices=choices, blank_is_none=blank_is_none)


def required(
    name: str, to: str | None = None, choices: tuple[str, ...] = (), *, blank_is_none: bool = False
) -> Attribute:
    """Return a mandatory attribute."""
    return Attribute(name=name, to=to, required=True, choices=choices, blank_is_none=blank_is_none)


def optional(
    name: str,
    to: str | None = None,
    choices: tuple[str, ...] = (),
    default: str | None = None,
    *,
    blank_is_none: bool = False,
) -> Attribute:
    """Return an optional attribute."""
    return Attribute(name=name, to=to, choices=choices, default=default, blank_is_none=blank_is_none)


def wrapper(name: str, *content: Part) -> Element:
    """Return an element that only contains other elements."""
    return Element(name=name, form=Form.INLINE, content=content)


def section(name: str, *inside: Attribute | Part, to: str | None = None, any_order: bool = False) -> Element:
    """Return an element that is a map of its attributes and children, at the key `to` (by default its name)."""
    attributes, content = _divide(inside)
    key = name.replace("-", "_") if to is None else to
    return Element(name=name, to=key, attributes=attributes, content=content, any_order=any_order)


def entries(
    to: str, name: str, *inside: Attribute | Part, key: str = "name", value: str | None = None, least: int = 1
) -> Element:
    """Return the element `to` of at least `least` elements, which become a map by their attribute `key`."""
    attributes, content = _divide(inside)
    entry = Element(name=name, form=Form.KEYED, to=to, key=key, value=value, attributes=attributes, content=content)
    return wrapper(to, many(entry, least))


def _divide(inside: tuple[Attribute | Part, ...]) -> tuple[tuple[Attribute, ...], tuple[Part, ...]]:
    attributes = tuple(each for each in inside if isinstance(each, Attribute))
    return attributes, tuple(each for each in inside if isinstance(each, Part))
