"""Names of the work that feeds declare: flows, which copy a feed from one of its sources, and transfers, which
import it from a database or export it to one. They share one namespace with processes.
"""

from enum import StrEnum

from feed_assets.entities.common import Kind

SEPARATOR = "@"
"""Separates feed and source; no entity name contains it."""
DOT = "."
"""Separates feed and transfer; no entity name contains it."""


class Transfer(StrEnum):
    """What is done between a feed and a database."""

    IMPORT = "import"
    EXPORT = "export"


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


def transfer_name(feed: str, transfer: Transfer) -> str:
    """Return the name of the import or export of a feed.

    >>> transfer_name("orders", Transfer.EXPORT)
    'orders.export'
    """
    return f"{feed}{DOT}{transfer}"


def parse_transfer(name: str) -> tuple[str, Transfer] | None:
    """Return the feed and what is done with it; None for the name of a process or flow.

    >>> parse_transfer("orders.export"), parse_transfer("clean-clicks")
    (('orders', <Transfer.EXPORT: 'export'>), None)
    """
    feed, _, transfer = name.partition(DOT)
    return (feed, Transfer(transfer)) if transfer in list(Transfer) else None


def is_of_feed(name: str) -> bool:
    """Return whether a feed declares the work of a name, not a process.

    >>> is_of_feed("clicks@east"), is_of_feed("orders.import"), is_of_feed("clean-clicks"), is_of_feed("a.b")
    (True, True, False, False)
    """
    return SEPARATOR in name or parse_transfer(name) is not None


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
    """Return the name of a process, flow or transfer for a sentence.

    >>> describe_process("clicks@east"), describe_process("clean-clicks")
    ("the replication of feed 'clicks' from east", "process 'clean-clicks'")
    >>> describe_process("orders.export")
    "the export of feed 'orders'"
    """
    if (flow := parse_flow(name)) is not None:
        return f"the replication of feed {flow[0]!r} from {flow[1]}"
    if (transfer := parse_transfer(name)) is not None:
        return f"the {transfer[1]} of feed {transfer[0]!r}"
    return f"process {name!r}"


def declared_by(name: str) -> tuple[Kind, str]:
    """Return the entity that declares a process, flow or transfer: the process itself, or the feed.

    >>> declared_by("clicks@east"), declared_by("orders.import")
    ((<Kind.FEED: 'feed'>, 'clicks'), (<Kind.FEED: 'feed'>, 'orders'))
    """
    of = parse_flow(name) or parse_transfer(name)
    return (Kind.PROCESS, name) if of is None else (Kind.FEED, of[0])
