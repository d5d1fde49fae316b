"""One instance of an import, in a process of its own. Arguments: folder of the project, number of the day, rows."""

import sys
from datetime import timedelta
from pathlib import Path

from benchmarks.plain_import import Turn
from benchmarks.workload import CLUSTER, START
from feed_assets.clock import FrozenClock
from feed_assets.context.operation import AttemptContext
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from feed_assets.storage.pool import StorePool


def main(folder: str, day: str, rows: str) -> None:
    """Import the instance of a day and print the seconds that it has taken."""
    root, time = Path(folder), START + timedelta(days=int(day))
    settings = load_settings({"entities": f"{folder}/entities"}, environ={}, start=root)
    clock = FrozenClock(time + timedelta(days=1))
    plan = load_location(settings).plan
    database = open_database(f"sqlite:///{folder}/state.db")
    turn = Turn()
    context = AttemptContext(
        database=database, stores=StorePool(), clock=clock, real_clock=clock, plan=plan, run_id=f"run-{day}"
    )
    runner = InstanceRunner(context=context, root=root, session=lambda: turn.spark)
    process = plan.processes[transfer_name("orders", Transfer.IMPORT), CLUSTER]
    (done,) = runner.run(process, time, lambda _: None)
    assert done.rows == int(rows)
    turn.report()
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
