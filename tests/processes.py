"""How tests start processes that work with the state: forked from a server that has imported what they need."""

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "feed_assets.simulate.simulation",
        "feed_assets.definitions.store",
        "feed_assets.retention.sweeps.sweeping",
        "feed_assets.storage.local.store",
        "feed_assets.storage.object.store",
        "sqlalchemy.dialects.postgresql.psycopg2",
        "boto3",
        "moto.server",
    ]
)
