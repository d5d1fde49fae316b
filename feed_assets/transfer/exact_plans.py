"""Plan exact copies, those of archives: everything of an instance, in any state, to a place where nothing is."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from feed_assets.clock import Clock
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.copy_port import SourceFile, Survey
from feed_assets.storage.errors import PlaceOccupiedError
from feed_assets.storage.listing import nanoseconds
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.errors import SourceChangingError
from feed_assets.transfer.plans import CopyPlan, Side, survey_source

_THREADS = 4


def plan_exactly(stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock) -> CopyPlan:
    """Plan an exact copy: of everything, to a place where nothing is. Nothing is to be done if an equal copy is there.

    Raises:
        PlaceOccupiedError: something else is there.
        SourceChangingError: the source changed while it was compared with an equal copy.
    """
    url, survey = stores.get(source.store).url(source.path), survey_source(stores, source, options, clock)
    standing = stores.get(target.store).copying().survey_all(target.path, nanoseconds(clock.now()))
    is_there = standing.availability is not Availability.MISSING
    if is_there:
        if not _is_equal(stores, source, survey, target, standing):
            raise PlaceOccupiedError(store=stores.get(target.store).root_url, path=target.path)
        if not survey_source(stores, source, options, clock).is_like(survey):
            raise SourceChangingError(url=url, tries=1, reason="it changed while it was compared")
    return CopyPlan(
        source=source,
        target=target,
        options=options,
        source_url=url,
        is_unchanged=is_there,
        survey=survey,
        transfers=survey.files,
        flags=(target.flag,) if target.flag else (),
    )


def _is_equal(stores: StorePool, source: Side, survey: Survey, target: Side, standing: Survey) -> bool:
    """Return whether two instances have the same files with the same bytes; read both."""
    if [file[:2] for file in survey.files] != [file[:2] for file in standing.files]:
        return False
    with ExitStack() as stack:
        sides = [stack.enter_context(stores.get(side.store).copying().reading(side.path)) for side in (source, target)]

        def is_equal(file: SourceFile) -> bool:
            one, other = (checksum_of(reading.chunks(file.path)) for reading in sides)
            return one == other

        with ThreadPoolExecutor(_THREADS) as pool:
            return all(pool.map(is_equal, survey.files))
