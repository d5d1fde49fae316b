"""Open the gate of an attempt: find its inputs, in the record and in storage, and freeze them."""

from datetime import datetime

from feed_assets.context.lifecycle import AttemptContext
from feed_assets.entities.flow_names import describe_process
from feed_assets.instances.arrival.polling import poll_missing_inputs
from feed_assets.instances.arrival.vanishing import present_inputs, record_vanished
from feed_assets.instances.attempts.attempt_inputs import freeze_inputs, scan_late_inputs
from feed_assets.instances.errors import InputsMissingError
from feed_assets.instances.leasing import HeldLeases
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessKey
from feed_assets.log.run_names import origin_of
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.triggers.input_windows import InputState
from feed_assets.triggers.time_outs import check_gate


def open_gate(
    context: AttemptContext,
    leased: HeldLeases,
    process: ProcessRecord,
    nominal_time: datetime,
    states: tuple[InputState, ...] | None,
) -> tuple[InputState, ...]:
    """Freeze the inputs of an attempt: those that were found before it began, or else what `find_inputs` finds.

    Raises:
        InputsMissingError: a mandatory instance is missing.
    """
    now, key = context.clock.now(), ProcessKey(*process.key, nominal_time)
    if states is None:
        with context.database.read() as connection:
            row = ProcessInstances(connection).get(*key)
        assert row is not None
        states = find_inputs(context, process, row)
    real_now = context.real_clock.now()
    scanned = scan_late_inputs(context.database, context.stores, context.plan, key, states, now, real_now)
    with context.database.begin() as connection:
        leased.check_in(connection)
        freeze_inputs(connection, key, states, scanned, now)
    return states


def find_inputs(
    context: AttemptContext, process: ProcessRecord, row: ProcessInstance, stays: str | None = None
) -> tuple[InputState, ...]:
    """Find the inputs of an instance, after polling storage for external inputs that the record lacks, and for all that
    it has: what is gone is recorded. `stays` is what an instance without an attempt is.

    Raises:
        InputsMissingError: a mandatory instance is missing.
    """
    now, real_now = context.clock.now(), context.real_clock.now()
    database, stores = context.database, context.stores
    with database.read() as connection:
        states, closed = check_gate(connection, context.plan, process, row, now)
    is_short = any(state.missing for state in states)
    if is_short:
        poll_missing_inputs(database, stores, context.plan, states, now)
    present, origin = present_inputs(context.plan, states), origin_of(context.run_id)
    vanished = record_vanished(database, stores, present, now, real_now, origin)
    if is_short or vanished:
        with database.read() as connection:
            states, closed = check_gate(connection, context.plan, process, row, now)
    if closed:
        raise InputsMissingError(
            process=process.process,
            nominal_time=row.nominal_time,
            missing={state.edge.name: _missing_urls(context, state) for state in closed},
            makers={state.edge.name: _describe_maker(context.plan.feeds[state.edge.feed_key]) for state in closed},
            lost=tuple(_url(context, each.record, each.nominal_time) for each in vanished.values()),
            stays=stays,
        )
    return states


def _missing_urls(context: AttemptContext, state: InputState) -> tuple[str, ...]:
    record = context.plan.feeds[state.edge.feed_key]
    return tuple(_url(context, record, time) for time in state.missing)


def _url(context: AttemptContext, record: FeedRecord, nominal_time: datetime) -> str:
    return context.stores.url(record.store, record.path(nominal_time))


def _describe_maker(record: FeedRecord) -> str:
    """Return what makes the instances of a feed."""
    if record.produced_by is not None:
        return f"asset {record.producer} makes it"
    makers = sorted({describe_process(edge.process) for edge in record.outputs_of})
    return f"{' or '.join(makers)} makes it" if makers else "external: others deliver it"
