"""Names of flows: the replications of a feed from one of its sources. Flows and processes share one namespace."""

from feed_assets.entities.common import Kind

SEPARATOR = "@"
"""Separates feed and source; no entity name contains it."""


def flow_name(feed: str, source: str) -> str:
    """Return the name of the flow that copies a feed from a cluster.

    >>> flow_name("clicks", "east")
    'clicks@east'
    """
    return f"{feed}{SEPARATOR}{source}"


def parse_flow(name: str) -> tuple[str, str] | None:
    """Return the feed and the source of a flow; None for the name of a process.

    >>> parse_flow("clicks@east"), parse_flow("clean-clicks")
    (('clicks', 'east'), None)
    """
    feed, separator, source = name.partition(SEPARATOR)
    return (feed, source) if separator else None


def is_flow(name: str) -> bool:
    """Return whether a name is that of a flow.

    >>> is_flow("clicks@east"), is_flow("clean-clicks")
    (True, False)
    """
    return SEPARATOR in name


def source_of(name: str) -> str | None:
    """Return the source of a flow; None for the name of a process.

    >>> source_of("clicks@east"), source_of("clean-clicks")
    ('east', None)
    """
    return name.partition(SEPARATOR)[2] or None


def describe_process(name: str) -> str:
    """Return the name of a process or flow for a sentence.

    >>> describe_process("clicks@east"), describe_process("clean-clicks")
    ("the replication of feed 'clicks' from east", "process 'clean-clicks'")
    """
    flow = parse_flow(name)
    return f"process {name!r}" if flow is None else f"the replication of feed {flow[0]!r} from {flow[1]}"


def declared_by(name: str) -> tuple[Kind, str]:
    """Return the entity that declares a process or flow: the process itself, or the flow's feed.

    >>> declared_by("clicks@east")
    (<Kind.FEED: 'feed'>, 'clicks')
    """
    flow = parse_flow(name)
    return (Kind.PROCESS, name) if flow is None else (Kind.FEED, flow[0])
