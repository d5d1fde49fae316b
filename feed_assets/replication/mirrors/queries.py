"""What can be asked for as a mirror."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.operation import Param
from feed_assets.timing.sequence import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRequest:
    """The requested mirror. What is not given is taken from `properties`, else from `file`, or has its default.

    Sides are `cluster:/directory`, `/directory` or a URL.
    """

    name: Annotated[str | None, Param("The name of the process.", argument=True)] = None
    sources: Annotated[
        tuple[str, ...], Param("What to read, cluster:/directory; may be repeated.", option="source", metavar="PLACE")
    ] = ()
    target: Annotated[str | None, Param("What to write, cluster:/directory, or a URL.", metavar="PLACE")] = None
    cluster: Annotated[str | None, Param("Where it runs; by default that of the target, else of the source.")] = None
    frequency: Annotated[Frequency | None, Param("How often; by default days(1).")] = None
    start: Annotated[datetime | None, Param("The first run; by default today, at midnight.")] = None
    end: Annotated[datetime | None, Param("The end of the validity: no run from then on.")] = None
    removes: Annotated[bool, Param("Remove files of the target that the source has not.", option="remove")] = False
    snapshots: Annotated[str | None, Param("Keep the newest N states of source, M of target.", metavar="N[,M]")] = None
    file: Annotated[dict[str, str] | None, Param("Properties of Falcon's extension.", file=True)] = None
    properties: Annotated[dict[str, str] | None, Param("One of them; may be repeated.", option="property")] = None
