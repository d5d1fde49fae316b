"""The graph that questions about lineage answer with: what data and what work there was, and what came of what. An edge
leads from what was there first to what came of it. It is a tree for people, a graph for Graphviz, and JSON.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import groupby
from operator import attrgetter

from feed_assets.entities.graph import find_reached
from feed_assets.json_form import Hidden, NominalTime
from feed_assets.lineage.drawing import Box, draw_boxes
from feed_assets.masking import mask
from feed_assets.timing.dates import render_datetime

MOST_NODES = 2_000
"""How large a graph becomes before it is cut off."""
MOST_DRAWN = 200
"""How many boxes a picture has."""
MORE_LEVELS = "there is more beyond --levels {}: give a higher number"

_DIGEST = 12
_WORK = ("process", "attempt")
MORE = "... and more"
_COLOURS = {
    "green": ("ARRIVED", "PRODUCED", "REPLICATED", "RESTORED", "SIGNALLED", "SUCCEEDED", "DONE"),
    "cyan": ("RUNNING",),
    "yellow": ("CHANGED", "EVICTED", "READY", "WAITING", "SUSPENDED", "PLANNED", "UNDONE"),
    "red": ("FAILED", "KILLED", "TIMEDOUT", "VANISHED"),
}
_COLOUR_OF = {state: colour for colour, states in _COLOURS.items() for state in states}


class NodeKind(StrEnum):
    """What a node is."""

    FEED = "feed"
    PROCESS = "process"
    EVENT = "event"
    ATTEMPT = "attempt"
    AUTHOR = "author"
    ASSET = "asset"
    FILE = "file"
    SWEEP = "sweep"
    PLACE = "place"
    CLUSTER = "cluster"
    DATASOURCE = "datasource"
    PIPELINE = "pipeline"
    GROUP = "group"
    TAG = "tag"
    OWNER = "owner"
    COLO = "colo"
    COLUMN = "column"
    EXPRESSION = "expression"


class EdgeKind(StrEnum):
    """How one came of the other."""

    MADE = "made"
    READ = "read"
    COPIED = "copied"
    GAVE = "gave"
    REMOVED = "removed"
    THEN = "then"
    HAS = "has"
    HANDS = "hands on"
    DIRECT = "direct"
    INDIRECT = "indirect"
    DECLARED = "declared"


WORDS = {
    EdgeKind.MADE: ("made by", "made"),
    EdgeKind.READ: ("read", "read by"),
    EdgeKind.COPIED: ("copied from", "copied to"),
    EdgeKind.GAVE: ("from", "gave"),
    EdgeKind.REMOVED: ("removed by", "removed"),
    EdgeKind.THEN: ("after", "then"),
    EdgeKind.HAS: ("of", "has"),
    EdgeKind.HANDS: ("gets {name} from", "hands {name} to"),
    EdgeKind.DIRECT: ("of", "in"),
    EdgeKind.INDIRECT: ("decided by", "decides"),
    EdgeKind.DECLARED: ("declared to be of", "declared to be in"),
}
"""How the target of an edge came of its source, and what the source has to do with the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Data, work, or whoever acted on them. `state` is what happened to the data, or how the work ended, `at` when;
    `remarks` are sentences about it.
    """

    id: str
    kind: NodeKind
    name: str
    cluster: str | None = None
    nominal_time: NominalTime | None = None
    state: str | None = None
    at: datetime | None = None
    number: int | None = None
    """Of an event its number in the log, of an attempt its number at the instance."""
    digest: str | None = None
    run_id: str | None = None
    release: int | None = None
    proof: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Its kind, name and cluster."""
        kind = {NodeKind.EVENT: NodeKind.FEED, NodeKind.ATTEMPT: NodeKind.PROCESS}.get(self.kind, self.kind)
        return f"{kind} {self.name}" + (f" on {self.cluster}" if self.cluster else "")

    @property
    def sort(self) -> Hashable:
        """What it has in common with the others of a series, of which each is of another instance."""
        attempt = self.number if self.kind is NodeKind.ATTEMPT else None
        return (self.subject, self.state, attempt, self.remarks, self.proof)

    @property
    def label(self) -> str:
        """It in a line: `feed clicks on primary 2013-11-03T05:00Z ARRIVED 2013-11-03T05:10:00Z sha256:1f3a`."""
        return self.line()

    def line(self, until: datetime | None = None) -> str:
        """Return it in a line, or all of a series until a time."""
        attempt = f"attempt {self.number}" if self.kind is NodeKind.ATTEMPT else None
        words = [
            self.subject,
            render_datetime(self.nominal_time) if self.nominal_time else None,
            f"to {render_datetime(until)}" if until else None,
            attempt,
            self.state,
            None if until or not self.at else f"{self.at:%Y-%m-%dT%H:%M:%SZ}",
            None if until or not self.digest else self.digest[: self.digest.find(":") + 1 + _DIGEST],
            f"release {self.release}" if self.release is not None else None,
            f"run {self.run_id}" if self.run_id else None,
            f"[{self.proof}]" if self.proof else None,
        ]
        return " ".join(filter(None, words)) + "".join(f"; {each}" for each in self.remarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """That one came of the other; both are ids of nodes. `name` is that of the input or output, `first` and `last` are
    when it was so.
    """

    source: str
    target: str
    kind: EdgeKind
    name: str | None = None
    first: datetime | None = None
    last: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """What was found from some nodes on, the `starts`, upstream, downstream or both. It is not whole if it was cut off
    because of its size. `has_failed` if storage has something else than the record says.
    """

    starts: tuple[str, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    is_whole: bool = True
    remarks: tuple[str, ...] = ()
    up: Hidden[bool] = True
    down: Hidden[bool] = True
    has_failed: Hidden[bool] = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said on standard error."""
        return self.remarks

    @property
    def dot(self) -> str:
        """The graph in the language of Graphviz, in which instances with the same neighbours are one node."""
        shapes = {**dict.fromkeys(("feed", "event"), "box"), **dict.fromkeys(_WORK, "ellipse")}
        shown = self._find_series()
        nodes = (
            f'  "{_escape(each)}" [label="{_escape(_tell(series))}" shape="{shapes.get(series[0].kind, "plain")}"];'
            for each, series in shown.items()
        )
        edges = (
            f'  "{_escape(each.source)}" -> "{_escape(each.target)}" [label="{_escape(each.name or each.kind)}"];'
            for each in self.edges
            if each.source in shown and each.target in shown
        )
        return "\n".join(['digraph "lineage" {', *nodes, *edges, *([] if self.is_whole else [f'  "{MORE}";']), "}"])

    @property
    def svg(self) -> str:
        """The same as a picture."""
        return self.draw()

    def draw(self, find_address: Callable[[Sequence[Node]], str] = lambda _: "") -> str:
        """Return the same as a picture, SVG, in which the box of a series leads to its address. If it has too many
        boxes, it is of what is nearest to the starts: whole steps, or what fits of the first one.
        """
        series = self._find_series()
        pairs: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        beside: dict[str, list[str]] = defaultdict(list)
        for each in self.edges:
            if each.source in series and each.target in series:
                pairs[each.source, each.target][each.name or each.kind.value] = None
                beside[each.source].append(each.target)
                beside[each.target].append(each.source)
        near = {each: 0 for each in self.starts if each in series and len(series) > MOST_DRAWN}
        for name in (pending := list(near)):
            new = [each for each in dict.fromkeys(beside[name]) if each not in near]
            near |= dict.fromkeys(new, near[name] + 1)
            pending += new
        beyond = max(near.values(), default=0) + 1
        near |= {name: beyond for name in series if name not in near}
        listed = list(near)
        steps = near[listed[MOST_DRAWN]] - 1 if len(listed) > MOST_DRAWN else beyond
        shown = [name for name in listed if near[name] <= steps] if steps > 0 else listed[:MOST_DRAWN]
        boxes = {name: _box(series[name], name in self.starts, find_address(series[name])) for name in shown}
        arrows = {pair: list(words) for pair, words in pairs.items() if boxes.keys() >= {*pair}}
        least = f"those at most {steps} {'step' if steps == 1 else 'steps'} away" if steps > 0 else "the nearest"
        remark = f"Drawn are {len(boxes):,} of {len(listed):,}: {least}. The text has all."
        return draw_boxes(boxes, arrows, [*[remark][: len(listed) - len(shown)], *[MORE][: not self.is_whole]])

    def _find_series(self) -> dict[str, list[Node]]:
        """Return each series by the id of its first node, in the order of their times."""
        around: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for edge in self.edges:
            around[edge.source].add(("to", edge.target, edge.kind, edge.name or ""))
            around[edge.target].add(("from", edge.source, edge.kind, edge.name or ""))
        found: dict[Hashable, list[Node]] = defaultdict(list)
        for each in self.nodes:
            sort = (each.sort, frozenset(around[each.id]))
            found[each.id if each.nominal_time is None or each.id in self.starts else sort].append(each)
        listed = (sorted(each, key=attrgetter("nominal_time")) if each[1:] else each for each in found.values())
        return {each[0].id: each for each in listed}

    def find_shown(self) -> frozenset[str]:
        """Return the ids of the nodes in the trees of the text."""
        asked = [upwards for upwards, is_asked in ((True, self.up), (False, self.down)) if is_asked]
        return frozenset(self.starts).union(*(find_reached(self._follow(upwards=each), self.starts) for each in asked))

    def _follow(self, *, upwards: bool) -> dict[str, dict[str, list[Edge]]]:
        following: dict[str, dict[str, list[Edge]]] = defaultdict(dict)
        for each in self.edges:
            one, other = (each.target, each.source) if upwards else (each.source, each.target)
            following[one].setdefault(other, []).append(each)
        return following

    @property
    def text(self) -> str:
        """A tree with what each came of below it, and one with what came of it. What is repeated is not told again."""
        lines = []
        for title, is_asked, upwards in (("what it came of:", self.up, True), ("what came of it:", self.down, False)):
            if is_asked:
                lines += [title] if self.up and self.down and self.nodes else []
                lines += self.tree(upwards=upwards)
        return "\n".join([*lines, *([] if self.is_whole else [MORE])])

    def tree(self, *, upwards: bool, label: Callable[[Node, datetime | None], str] | None = None) -> list[str]:
        """Return the lines of a tree in one direction, what follows each node below it: of words and nodes, or of the
        labels of these alone. A repeated node is not expanded again; what stands below an earlier start is no start.
        What ends the tree is one line for each series, which a label tells until a time.
        """
        nodes, following = {each.id: each for each in self.nodes}, self._follow(upwards=upwards)

        def prefix(above: str | None, each: str) -> str:
            if above is None or label is not None:
                return ""
            told: dict[str, list[str]] = defaultdict(list)
            for edge in following[above][each]:
                word = WORDS[edge.kind][0 if upwards else 1].format(name=edge.name)
                told[word] += filter(None, [edge.name])
            ways = (f"{word} ({', '.join(names)})" if len(names) > 1 else word for word, names in told.items())
            return f"{' and '.join(ways)} "

        def series(above: str, each: str) -> Hashable:
            is_single = each in following or nodes[each].nominal_time is None
            return each if is_single else (prefix(above, each), nodes[each].sort)

        lines: list[str] = []
        shown: set[str] = set()
        for start in reversed(self.starts) if upwards else self.starts:
            stack: list[tuple[int, str | None, list[str]]] = [(0, None, [start])] if start not in shown else []
            while stack:
                depth, above, listed = stack.pop()
                first, below, count = listed[0], following.get(listed[0], {}), len(listed)
                until = nodes[listed[-1]].nominal_time if count > 1 else None
                told = f"{'  ' * depth}{prefix(above, first)}{(label or Node.line)(nodes[first], until)}"
                lines.append(f"{told} ({count} instances)" if count > 1 else told)
                lines[-1] += " (see above)" if count == 1 and first in shown and below else ""
                grouped = groupby(below if first not in shown else (), partial(series, first))
                stack += [(depth + 1, first, each) for each in reversed([[*each] for _, each in grouped])]
                shown.update(listed)
        return lines


def _tell(series: Sequence[Node]) -> str:
    first, *others = series
    return f"{first.line(others[-1].nominal_time)} ({1 + len(others)} instances)" if others else first.label


def _box(series: Sequence[Node], is_start: bool, href: str) -> Box:
    first = series[0]
    attempt = f", attempt {first.number}" if first.kind is NodeKind.ATTEMPT else ""
    moment = first.nominal_time or first.at
    count = f"{len(series)} from" if series[1:] else None
    words = filter(None, (count, render_datetime(moment) if moment else None, first.state, first.proof))
    return Box(
        lines=(first.name, first.subject.replace(f" {first.name}", "", 1) + attempt, " ".join(words)),
        title=_tell(series),
        colour=_COLOUR_OF.get(first.state or "", ""),
        is_round=first.kind in _WORK,
        is_bold=is_start,
        href=href,
    )


def _escape(text: str) -> str:
    return mask(text).replace("\\", "\\\\").replace('"', '\\"')
