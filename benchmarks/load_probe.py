"""Loads the module `definitions` of a folder like a run's worker, and prints the seconds of each step. Arguments: the
folder, and the asset key (`cluster/name`) of the run.
"""

import json
import sys
import time

begun = time.perf_counter()


def main(folder: str, key: str) -> None:
    """Import Dagster, the location, its repository and the job of one asset."""
    sys.path.insert(0, folder)
    from dagster import AssetKey

    imported = time.perf_counter()
    import definitions

    repository = definitions.defs.get_repository_def()
    job = repository.get_job("__ASSET_JOB").get_subset(asset_selection={AssetKey.from_user_string(key)})
    ended = time.perf_counter()
    assert job.all_node_defs
    assets = len(repository.asset_graph.get_all_asset_keys())
    print(json.dumps({"total": ended - begun, "location": ended - imported, "assets": assets}))


if __name__ == "__main__":
    main(*sys.argv[1:])
