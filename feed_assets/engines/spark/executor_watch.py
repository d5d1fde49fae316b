"""Notice that the jobs of a session have no executor. Spark waits for one for ever, and says so only in Java's log."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import TYPE_CHECKING

from feed_assets.clock import Stopwatch

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PATIENCE = "spark.feed_assets.executor_patience"
"""The setting of a session that says how long jobs may be without an executor, such as `30min`."""

_DEFAULT_PATIENCE = "10min"
_LOOK_SECONDS = 5.0
_QUIET_SECONDS = 15.0
"""So long clusters take to give executors anyway."""
_EVERY_SECONDS = 120.0


class ExecutorWatch(AbstractContextManager["ExecutorWatch", None]):
    """Watches the session of a run from `begin` to the end of its block. When jobs have no executor, it says so; in the
    end, it cancels them, and the sentence becomes the reason of their failure.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ended = Event()
        self._thread: Thread | None = None

    def begin(self, spark: "SparkSession") -> None:
        """Watch a session whose executors are not in the driver. Only the first call has an effect."""
        from pyspark.sql import is_remote

        if self._thread is not None or is_remote() or (spark.sparkContext.master or "").startswith("local"):
            return
        context = spark.sparkContext
        assert context._jvm is not None
        patience = context.getConf().get(PATIENCE, _DEFAULT_PATIENCE)
        seconds = context._jvm.org.apache.spark.network.util.JavaUtils.timeStringAsSec(patience)
        self._thread = Thread(target=self._watch, args=(context, float(seconds)), daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, context: "SparkContext", patience: float) -> None:
        from py4j.protocol import Py4JError

        waiting: Stopwatch | None = None
        say_at = quiet = min(_QUIET_SECONDS, patience / 2)
        while not self._ended.wait(max(0.1, min(_LOOK_SECONDS, patience / 4))):
            try:
                jobs = _jobs_without_executor(context)
                if not jobs:
                    waiting, say_at = None, quiet
                    continue
                waiting = waiting or Stopwatch()
                if waiting.seconds >= patience:
                    for job in jobs:
                        context._jsc.sc().cancelJob(job, f"because {_describe(context, waiting.seconds)}")
                elif waiting.seconds >= say_at:
                    say_at = waiting.seconds + _EVERY_SECONDS
                    self._say(f"{_describe(context, waiting.seconds)} The jobs are cancelled after {patience:.0f} s.")
            except (Py4JError, OSError, AttributeError):  # the session has been stopped, or its Java machine has died
                return


def _jobs_without_executor(context: "SparkContext") -> list[int]:
    tracker = context.statusTracker()
    jobs = tracker.getActiveJobsIds()
    return jobs if jobs and len(tracker.getExecutorInfos()) <= 1 else []  # one is the driver


def _describe(context: "SparkContext", seconds: float) -> str:
    conf = context.getConf()
    driver = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
    return (
        f"{context.master} has given no executor for {seconds:.0f} s. Check that it has a worker with "
        f"spark.executor.memory ({conf.get('spark.executor.memory', '1g')}) and a processor free, that no other "
        f"application has them all (spark.cores.max limits one), and that workers reach the driver at {driver} "
        "(spark.driver.host)."
    )
