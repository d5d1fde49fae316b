"""Refuse calls about batches of work elsewhere, and name the call that takes a batch."""

from feed_assets.command_lines import command_line
from feed_assets.plan.records import ProcessRecord
from feed_assets.triggers.errors import BatchRefusedError


def refuse(record: ProcessRecord, reason: str, next_step: str) -> BatchRefusedError:
    """Return the refusal of a call about a batch of a process."""
    return BatchRefusedError(process=record.process, cluster=record.cluster, reason=reason, next_step=next_step)


def init_command(record: ProcessRecord) -> str:
    """Return the call that takes a batch of a process."""
    return command_line("batch", "init", record.process, cluster=record.cluster)
