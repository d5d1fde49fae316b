"""The root causes of late instances, as `why` tells them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.masking import get_logger, mask
from feed_assets.operations.context import OperationContext
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.explaining.explanations import explain_feed_instance, explain_process_instance
from feed_assets.state.sla_records import LateInstance
from feed_assets.timing.errors import InstanceError

_NO_INSTANCE = (EntityNotFoundError, InstanceError, InstanceQueryError)

_logger = get_logger(__name__)


def find_causes(context: OperationContext, instances: Sequence[LateInstance]) -> Mapping[LateInstance, str]:
    """Return the root cause of each late instance, without secrets; left out if there is none by the current
    definitions. An error here is logged: an alert without its cause is better than none.
    """
    found: dict[LateInstance, str] = {}
    if not instances:
        return found
    try:
        with context.read() as connection:
            for each in instances:
                with suppress(*_NO_INSTANCE):
                    found[each] = mask(_explain(context, connection, each))
    except Exception:
        _logger.warning("the root cause of a late instance could not be found", exc_info=True)
    return found


def _explain(context: OperationContext, connection: Connection, late: LateInstance) -> str:
    how = explain_process_instance if late.kind == Kind.PROCESS else explain_feed_instance
    return how(context, connection, late.name, late.cluster, late.nominal_time).root_sentence
