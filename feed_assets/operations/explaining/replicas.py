"""The reasons about replicas that are behind their source, for the instances of both sides."""

from collections.abc import Iterator

from sqlalchemy import Connection

from feed_assets.command_lines import instance_command
from feed_assets.entities.flow_names import describe_process
from feed_assets.operations.context import OperationContext
from feed_assets.operations.explaining.records import Reason, ReasonCode
from feed_assets.operations.instances.rows import rendered
from feed_assets.plan.records import FeedRecord
from feed_assets.state.late_checks import UPDATE, LateChecks
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import FeedKey, ProcessInstanceStatus, ProcessKey

_ENDED = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED})


def explain_behind(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey
) -> Iterator[Reason]:
    """Yield which replicas of an instance are behind, or that it is one; each with the state of the copy."""
    plan = context.plan
    related = [edge.process_key for edge in record.outputs_of] + [edge.process_key for edge in record.inputs_of]
    flows = [flow for each in related if (flow := plan.processes.get(each)) is not None and flow.copy is not None]
    keys = {ProcessKey(*flow.key, key.nominal_time): flow for flow in flows}
    rows, checks = ProcessInstances(connection).get_many(keys), LateChecks(connection)
    for copy, flow in keys.items():
        check, row = checks.get(UPDATE, *copy), rows.get(copy)
        if check is None or row is None:
            continue
        source, since = flow.inputs[0].feed_cluster, rendered(check.planned_at)
        is_target = key.cluster == flow.cluster
        text = f"it is behind its source on {source}" if is_target else f"its copy on {flow.cluster} is behind"
        text += f", which has other content since {since}: " if is_target else f" since it changed at {since}: "
        text += f"{describe_process(flow.process)} is {row.status.value}"
        text += f" ({row.reason})" if row.reason else ""
        again = instance_command("rerun", copy.process, copy.nominal_time, copy.cluster)
        command = again if row.status in _ENDED else None
        facts = {"source": source, "target": flow.cluster, "since": since, "status": row.status.value}
        yield Reason(code=ReasonCode.BEHIND, text=text, facts=facts, command=command)
