"""What the launchpad of the job `operate` asks for."""

from typing import Literal

import dagster as dg
from pydantic import Field


class Operation(dg.Config):
    """What is to be done."""

    action: Literal["rerun", "kill", "suspend", "resume", "hold", "approve", "undo"] = Field(
        description="What to do. approve is of a sweep that asks, undo of what a sweep has removed."
    )
    name: str = Field(description="The process or copied feed; for hold the feed; for approve and undo the sweep.")
    instance: str = Field("", description="One instance: 2013-11-03T05:00Z, a day or a partition key.")
    start: str = Field("", description="Instead of it, instances from this one on …")
    end: str = Field("", description="… and before this one.")
    clusters: list[str] = Field([], description="Only on these clusters.")
    properties: dict[str, str] = Field({}, description="For rerun: properties that override those of the process.")
    from_start: bool = Field(False, description="For rerun: repeat the steps that have finished, too.")
    downstream: bool = Field(
        False, description="For rerun: run again what hangs on them, too, as far as content comes out changed."
    )
    levels: int = Field(0, ge=0, description="For that: only so many steps; 0 for all.")
    even_unchanged: bool = Field(False, description="For that: go on behind what comes out unchanged.")
    digest: str = Field("", description="For that: the digest of the plan, which a dry run says in the log.")
    hold: str = Field("dagster", description="For hold: its name, by which it is released.")
    reason: str = Field("", description="For hold: why.")
    dry_run: bool = Field(False, description="Say in the log what would be done; change nothing.")
