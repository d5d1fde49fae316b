"""Overlaps of path templates: a path of one template can be equal to, or inside, a path of another.

An overlapping path could be removed, published or listed by two owners, so this errs on the side of an overlap: every
variable matches digits, whatever the date, and a repeated variable need not repeat its value.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from feed_assets.timing.templates import TimeVariable, text_of

_DIGIT = "\0"
_DIGITS = frozenset("0123456789" + _DIGIT)
_DIGITS_OF = tuple(
    (text_of(variable), _DIGIT * (4 if variable is TimeVariable.YEAR else 2)) for variable in TimeVariable
)
_FILE = "file:"
_SAME_STORAGE = MappingProxyType({"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOverlap:
    """An overlap: paths of template number `inner` can be inside paths of template number `outer`, or equal to them."""

    outer: int
    inner: int
    is_same_place: bool


class Nesting(StrEnum):
    """The relation of one location to another: its paths can be at, inside, or around paths of the other."""

    AT = "at"
    INSIDE = "inside"
    AROUND = "around"


def find_nesting(one: str, other: str) -> Nesting | None:
    """Return the relation of two locations, with or without time variables; None if they cannot overlap.

    >>> find_nesting("file:///d/models", "/d/${YEAR}"), find_nesting("/d/2015/a", "/d/${YEAR}").value
    (None, 'inside')
    """
    segments, others = _segments(one), _segments(other)
    if not all(_can_equal(a, b) for a, b in zip(segments, others, strict=False)):
        return None
    if len(segments) == len(others):
        return Nesting.AT
    return Nesting.INSIDE if len(segments) > len(others) else Nesting.AROUND


@dataclass(slots=True)
class _Level:
    ends: list[int] = field(default_factory=list)
    below: dict[str, "_Level"] = field(default_factory=dict)
    varying: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def iter_overlaps(texts: Sequence[str]) -> Iterator[PathOverlap]:
    """Yield the overlaps of templates, by their positions.

    Each text begins with a URL scheme or is an absolute local path, and has no variables except time variables. A
    template without variables is only ever `inner`. Two templates that can have equal paths overlap in both directions.

    >>> texts = ["/d/${YEAR}/${MONTH}", "/d/${YEAR}", "/d/archive/${YEAR}", "/d/2015/log"]
    >>> [(each.outer, each.inner) for each in iter_overlaps(texts)]
    [(1, 0), (1, 3)]
    """
    paths = [_segments(text) for text in texts]
    root = _tree({number: path for number, path in enumerate(paths) if any(_DIGIT in segment for segment in path)})
    for inner, path in enumerate(paths):
        for outer, depth in _iter_ends(root, path, 0):
            if outer != inner:
                yield PathOverlap(outer=outer, inner=inner, is_same_place=depth == len(path))


def iter_nested(ones: Sequence[str], others: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the pairs, by their positions, of one and another location that can be at, inside or around one another.

    The locations are written like the texts of `iter_overlaps`.

    >>> sorted(iter_nested(["/d/models", "/d"], ["/d/models/a", "/d/${YEAR}", "/e"]))
    [(0, 0), (1, 0), (1, 1)]
    """
    above, below = [_segments(text) for text in ones], [_segments(text) for text in others]
    root = _tree(dict(enumerate(below)))
    for one, path in enumerate(above):
        yield from ((one, other) for other, _ in _iter_ends(root, path, 0))
    root = _tree(dict(enumerate(above)))
    for other, path in enumerate(below):
        yield from ((one, other) for one, depth in _iter_ends(root, path, 0) if depth < len(path))


def _tree(paths: Mapping[int, Sequence[str]]) -> _Level:
    root = _Level()
    for number, path in paths.items():
        level = root
        for segment in path:
            if segment not in level.below:
                level.below[segment] = _Level()
                if _DIGIT in segment:
                    level.varying[len(segment)].append(segment)
            level = level.below[segment]
        level.ends.append(number)
    return root


def _iter_ends(level: _Level, path: Sequence[str], depth: int) -> Iterator[tuple[int, int]]:
    """Yield the templates whose segments are compatible with the first segments of `path`, and the number of these."""
    for number in level.ends:
        yield number, depth
    if depth == len(path):
        return
    segment = path[depth]
    alike = level.below if _DIGIT in segment else level.varying[len(segment)]
    for other in alike if _DIGIT in segment else {*alike, *({segment} & level.below.keys())}:
        if _can_equal(segment, other):
            yield from _iter_ends(level.below[other], path, depth + 1)


def _can_equal(one: str, other: str) -> bool:
    if one == other:
        return True
    return len(one) == len(other) and all(
        a == b or (_DIGIT in (a, b) and a in _DIGITS and b in _DIGITS) for a, b in zip(one, other, strict=True)
    )


def _segments(text: str) -> list[str]:
    """Return the segments of the paths, each variable as that many digits; the first is the scheme of the storage."""
    for variable, digits in _DIGITS_OF:
        text = text.replace(variable, digits)
    segments = [segment for segment in text.split("/") if segment]
    if "://" not in text:
        return [_FILE, *segments]
    return [f"{plain_scheme(segments[0].removesuffix(':'))}:", *segments[1:]]


def plain_scheme(scheme: str) -> str:
    """Return the scheme of URLs of a storage that has several, such as `s3` for `s3a`."""
    return _SAME_STORAGE.get(scheme, scheme)
