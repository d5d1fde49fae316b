"""Boxes and arrows as SVG, in layers from left to right. Its colours read on white and on black, and a page's classes
have the last word. It knows nothing of lineage.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

from feed_assets.errors import WrongUsageError, shorten
from feed_assets.masking import mask

_WIDE, _HIGH = 256, 62
_LAYER, _ROW = 366, 80
"""From box to box: of the next layer, and below."""
_EDGE = 10
_LETTERS, _LETTERS_OF_ARROW = 36, 18
_COLOURS = MappingProxyType(
    {"": "#767676", "green": "#008a00", "cyan": "#00838f", "yellow": "#9a6b00", "red": "#e62222"}
)

_Pair = tuple[str, str]
_Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box: its first three lines are shown, its title when it is pointed at. A class of a page is its colour."""

    lines: Sequence[str]
    title: str
    colour: str = ""
    is_round: bool = False
    is_bold: bool = False
    href: str = ""


def draw_boxes(boxes: Mapping[str, Box], arrows: Mapping[_Pair, Sequence[str]], remarks: Sequence[str] = ()) -> str:
    """Return boxes, arrows between them with their words, and remarks below them as SVG. No two boxes overlap, and no
    arrow goes through one.

    Raises:
        WrongUsageError: the package that finds the places is not installed.
    """
    arrows = {pair: words for pair, words in arrows.items() if pair[0] != pair[1]}
    at, ways = _lay_out(list(boxes), list(arrows))
    points = [point for way in ways.values() for point in way] + list(at.values())
    wide = max((x for x, _ in points), default=0) * _LAYER + _WIDE + 2 * _EDGE
    high = max((y for _, y in points), default=0) * _ROW + _HIGH + 2 * _EDGE
    said = [
        f'<text x="{_EDGE}" y="{high + 12 + 18 * number:g}" fill="currentColor">{_clean(each)}</text>'
        for number, each in enumerate(remarks)
    ]
    high += 18 * len(said)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lineage" width="{wide:g}" height="{high:g}" '
        f'viewBox="0 0 {wide:g} {high:g}" color="{_COLOURS[""]}" font-family="system-ui, sans-serif" font-size="12" '
        'role="group" aria-label="Lineage">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    )
    drawn = [line for pair, words in arrows.items() for line in _draw_arrow(ways[pair], ", ".join(words))]
    return "\n".join([head, *drawn, *(_draw_box(box, at[name]) for name, box in boxes.items()), *said, "</svg>"])


def _lay_out(names: Sequence[str], pairs: Collection[_Pair]) -> tuple[dict[str, _Point], dict[_Pair, list[_Point]]]:
    """Return the layer and row of each name, and the points of the way between each pair, its ends included."""
    try:
        from fast_sugiyama import from_edges
    except ImportError as exc:
        raise WrongUsageError(
            "Pictures need the package fast-sugiyama, which is not installed. "
            "Install it: pip install 'feed-assets[server]'"
        ) from exc
    ends = {name for pair in pairs for name in pair}
    linked = [name for name in names if name in ends]
    numbers = {name: number for number, name in enumerate(linked)}
    edges = [(numbers[source], numbers[target]) for source, target in pairs]
    found = from_edges(edges, vertex_spacing=1, dummy_vertices=True, dummy_size=0.3) if edges else []
    at, ways, top = dict[str, _Point](), dict[_Pair, list[_Point]](), 0.0
    for positions, width, height, steps in sorted(found, key=lambda each: min(number for number, _ in each[0])):
        places = {int(number): (float(height - y), top + x) for number, (x, y) in positions}
        next_of = {source: target for source, target in steps or () if int(source) >= len(linked)}
        for source, target in sorted((int(one), int(other)) for one, other in steps or () if int(one) < len(linked)):
            way = [source, target]
            while way[-1] >= len(linked):
                way.append(int(next_of[way[-1]]))
            ways[linked[source], linked[way[-1]]] = [places[each] for each in way]
        at |= {linked[number]: place for number, place in places.items() if number < len(linked)}
        top += width + 1
    at |= {name: (0.0, top + row) for row, name in enumerate(each for each in names if each not in numbers)}
    return at, ways


def _draw_box(box: Box, at: _Point) -> str:
    x, y = at[0] * _LAYER + _EDGE, at[1] * _ROW + _EDGE
    lines = "".join(
        f'<text x="12" y="{18 + 17 * number}" fill="currentColor" font-weight="{"normal" if number else "bold"}">'
        f"{_clean(shorten(each, _LETTERS))}</text>"
        for number, each in enumerate(box.lines[:3])
    )
    drawn = (
        f'<g class="{box.colour}" color="{_COLOURS[box.colour]}"><title>{_clean(box.title)}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="{_HIGH // 2 if box.is_round else 3}" '
        f'fill="none" pointer-events="all" stroke="currentColor" stroke-width="{3 if box.is_bold else 1}"/>'
        f'<svg x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}">{lines}</svg></g>'
    )
    return f'<a href="{_clean(box.href)}">{drawn}</a>' if box.href else drawn


def _draw_arrow(way: Sequence[_Point], words: str) -> Iterator[str]:
    """Yield the line from box to box, through the gaps between others, and its words in the last gap."""
    sign = 1 if way[-1][0] > way[0][0] else -1
    out, into = (_WIDE, 0) if sign > 0 else (0, _WIDE)
    drawn, (px, py) = "", (0.0, 0.0)
    for number, (layer, row) in enumerate(way):
        x, y = layer * _LAYER + _EDGE, row * _ROW + _EDGE + _HIGH / 2
        if number:
            bend, end = sign * (_LAYER - _WIDE) / 2, x + into
            drawn += f"C{px + bend:g} {py:g} {end - bend:g} {y:g} {end:g} {y:g}"
            middle = ((px + end) / 2, (py + y) / 2 - 4)
        px, py = x + out, y
        if number < len(way) - 1:
            drawn += f"H{px:g}" if number else f"M{px:g} {py:g}"
    yield (
        f'<path d="{drawn}" fill="none" stroke="currentColor" marker-end="url(#arrow)">'
        f"<title>{_clean(words)}</title></path>"
    )
    yield (
        f'<text x="{middle[0]:g}" y="{middle[1]:g}" fill="currentColor" font-size="10" text-anchor="middle">'
        f"{_clean(shorten(words, _LETTERS_OF_ARROW))}</text>"
    )


def _clean(text: str) -> str:
    """Return a text without secrets and without what is no letter, as text of XML."""
    return escape("".join(each if each.isprintable() else "\ufffd" for each in " ".join(mask(text).split())))
