"""What the agenda says is due, and how entries come, move and go."""

import pytest

from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.sql.database import Database
from tests.log.samples import entry, hour

pytestmark = pytest.mark.both_databases

RETENTION, RISK = AgendaKind.RETENTION, AgendaKind.PROCESS_RISK_LOW


def test_due_entries_are_those_of_some_kinds_on_a_cluster_the_longest_waiting_first(database: Database) -> None:
    late, later = entry(1, name="views"), entry(2, kind=RISK)
    others = [entry(0, cluster="backup"), entry(0, kind=AgendaKind.UPDATE), entry(0, name="orders", due_at=None)]
    with database.begin() as connection:
        agenda = Agenda[Entry](connection)
        agenda.put([later, late, *others, entry(4)])
        assert agenda.due([RETENTION, RISK], "primary", hour(3), 9) == [late, later]
        assert agenda.due([RETENTION, RISK], "primary", hour(3), 1) == [late]
        assert agenda.due([RETENTION, RISK], "primary", hour(0), 9) == []


def test_an_entry_is_replaced_found_locked_and_removed(database: Database) -> None:
    moved, other = entry(9, state={"policy": "q"}), entry(3, name="views")
    with database.begin() as connection:
        agenda = Agenda[Entry](connection)
        agenda.put([entry(3), other, entry(cluster="backup")])
        agenda.put([moved])
        agenda.put([])
        assert agenda.of_cluster(RETENTION, "primary") == {"clicks": moved, "views": other}
        asked = [moved.key, entry(name="orders").key]
        assert agenda.get_many(asked) == agenda.lock_many(asked) == {moved.key: moved}
        assert agenda.get_many([]) == {}
        agenda.remove(asked)
        assert agenda.of_cluster(RETENTION, "primary") == {"views": other}


def test_an_entry_is_added_only_where_there_is_none(database: Database) -> None:
    with database.begin() as connection:
        agenda = Agenda[Entry](connection)
        agenda.put([entry(1)])
        agenda.add([entry(2), entry(2, name="views")])
        assert agenda.of_cluster(RETENTION, "primary") == {"clicks": entry(1), "views": entry(2, name="views")}


def test_those_of_a_process_are_due_while_it_is_scheduled(database: Database) -> None:
    mine = entry(1, kind=RISK, name="daily")

    def due(without_row: ScheduleState) -> list[Entry]:
        database.is_explicit = without_row is ScheduleState.SUBMITTED
        with database.read() as connection:
            return Agenda[Entry](connection).due([RISK], "primary", hour(1), 9)

    with database.begin() as connection:
        Agenda[Entry](connection).put([mine])
    assert due(ScheduleState.SCHEDULED) == [mine]
    assert due(ScheduleState.SUBMITTED) == []
    suspended = ScheduleState.SUSPENDED
    with database.begin() as connection:
        kind, changed_at = "process", hour(0)
        schedule = Schedule(
            kind=kind, name="daily", cluster="primary", state=suspended, changed_at=changed_at, author="ann"
        )
        Schedules(connection).put([schedule])
    assert due(ScheduleState.SCHEDULED) == []


def test_an_entry_about_no_instance_has_no_nominal_time_that_comes() -> None:
    assert AgendaKey.of_entity(RETENTION, "clicks", "primary") == entry().key


def test_what_a_wrong_clock_has_planned_is_due_again_and_all_else_stays(database: Database) -> None:
    ahead = [entry(99, kind=kind, planned_at=hour(90)) for kind in (RETENTION, RISK)]
    others = [entry(7, name="views"), entry(99, kind=AgendaKind.UPDATE, planned_at=hour(90), due_at=None)]
    with database.begin() as connection:
        agenda = Agenda[Entry](connection)
        agenda.put(
            [*ahead, others[0]._replace(name="views"), others[1], entry(99, cluster="backup", planned_at=hour(90))]
        )
        assert agenda.replan_premature("primary", hour(5)) == 2
        assert agenda.due([RETENTION, RISK], "primary", hour(5), 9) == [
            each._replace(due_at=hour(5), planned_at=hour(5)) for each in sorted(ahead)
        ]
        assert agenda.get_many([others[1].key]) == {others[1].key: others[1]}
