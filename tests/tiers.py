"""The tiers of tests: which worker runs them and in what order, what they cost, and how much a fast one may cost.

CPU seconds are those of the worker and of the processes that it has waited for.
"""

import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from tests.drills import IS_DRILL

TIERS = ("drill", "daemon", "spark", "server", "long")
"""Marks, from the dearest to the cheapest; a test without any of them is fast."""
SHARED = {
    "hdfs_cluster": "hdfs",
    "spark": "spark",
    "metastore_port": "metastore",
    "harness": "metastore",
    **dict.fromkeys(("shop", "shop_postgres", "shop_mariadb"), "shops"),
}
"""The groups of tests with a Java machine, by their fixture; a store of tables has the metastore."""
BUDGET = 15.0
"""CPU seconds of a fast test. A busy machine takes three times as many as a quiet one: a test that is over it is run
again, and only a second time over it fails.
"""
_IS_OVER = pytest.StashKey[bool]()
SHOWN = 5
"""How many of the slowest tests of a tier, and of the dearest files, are shown."""


def tier_of(item: pytest.Item) -> str:
    """The dearest mark of a test, or `fast`."""
    return next((tier for tier in TIERS if item.get_closest_marker(tier)), "fast")


@dataclass(slots=True, eq=False)
class Tiers:
    """A plugin of pytest: gathers the costs of all tests where their reports arrive."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu: dict[str, float] = field(default_factory=dict)
    tests: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, float] = field(default_factory=dict)
    idle: list[tuple[float, float]] = field(default_factory=lambda: [(time.monotonic(), _idle_seconds())])

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """There is one Spark session, one metastore and one HDFS: the tests with either go to one worker each. Tests of
        stores ask both databases, and not only in drills.
        """
        if item.get_closest_marker("both_databases"):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "drill"]
        tier = tier_of(item)
        item.user_properties.append(("tier", tier))
        for fixture, group in SHARED.items():
            if (tier == "spark" or group == "hdfs") and fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(group))
                break

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Garbage is looked for among what tests make, and not among modules and thousands of tests."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Only files with examples are searched for them: most have none."""
        collectors = yield
        return [each for each in collectors if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> "FilesAndGroups | None":
        """With `--dist loadgroup`, files without a group are kept whole, too."""
        return FilesAndGroups(config, log) if config.getvalue("dist") == "loadgroup" else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Begin with the groups, each of which one worker runs alone, and then with what takes long, so that all end
        together.
        """
        order = {tier: number for number, tier in enumerate((*TIERS, "fast"))} | {"spark": -1}
        items.sort(key=lambda item: (item.get_closest_marker("xdist_group") is None, order[tier_of(item)]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if tier_of(item) != "fast" or IS_DRILL or sys.gettrace() is not None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if item.stash.get(_IS_OVER, False):
            item._initrequest()  # type: ignore[attr-defined]  # as for the first time
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from _counted(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        cpu = yield from _counted(item)
        was_over, item.stash[_IS_OVER] = item.stash.get(_IS_OVER, False), cpu > BUDGET
        if was_over and cpu > BUDGET and tier_of(item) == "fast":
            pytest.fail(f"{cpu:.1f} CPU seconds: make it cheaper than {BUDGET:g}, or mark it `long`", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from _counted(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":
            properties = [(name, str(value)) for name, value in report.user_properties]
            self.cpu[report.nodeid] = sum(float(value) for name, value in properties if name == "cpu")
            self.tests[dict(properties)["tier"]].append(report.nodeid)
            now = self.ended[getattr(report, "worker_id", "main")] = time.monotonic()
            if now >= self.idle[-1][0] + 60:
                self.idle.append((now, _idle_seconds()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The costs of each tier, with its slowest tests, and what bounds the whole: processors, or a last worker."""
        if len(self.cpu) <= SHOWN:
            return
        terminalreporter.section("workers and processors")
        begun = self.idle[0][0]
        ends = ", ".join(f"{worker} {end - begun:.0f} s" for worker, end in sorted(self.ended.items()))
        terminalreporter.write_line(f"last test ended after: {ends}")
        shares = (
            (idle - before) / (end - start)
            for (start, before), (end, idle) in zip(self.idle, self.idle[1:], strict=False)
        )
        terminalreporter.write_line(
            f"idle processors of {os.cpu_count()}, by minute: {' '.join(f'{each:.1f}' for each in shares) or 'none'}"
        )
        terminalreporter.section("durations by tier")
        for tier in ("fast", *reversed(TIERS)):
            tests = sorted(self.tests[tier], key=self.seconds.__getitem__, reverse=True)
            if tests:
                cpu, seconds = (sum(each[test] for test in tests) for each in (self.cpu, self.seconds))
                terminalreporter.write_line(f"{tier}: {len(tests):,} tests, {seconds:.0f} s, {cpu:.0f} CPU s")
            for test in tests[:SHOWN]:
                name = test.partition("@")[0]
                terminalreporter.write_line(f"  {self.seconds[test]:6.1f} s {self.cpu[test]:6.1f} CPU s  {name}")
        terminalreporter.section("dearest files")
        files: dict[str, float] = defaultdict(float)
        for test, cpu in self.cpu.items():
            files[test.partition("::")[0]] += cpu
        for file in sorted(files, key=files.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"  {files[file]:6.1f} CPU s  {file}")


class FilesAndGroups(LoadGroupScheduling):
    """Gives a group, or a file, to one worker. The first worker begins at the other end: what is fast keeps a processor
    at work, while the others mostly wait for servers.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _idle_seconds() -> float:
    """The seconds that processors of this machine have had nothing to do."""
    idle, waiting = Path("/proc/stat").read_text().split()[4:6]
    return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")


def _counted(item: pytest.Item) -> Generator[None, None, float]:
    before = sum(os.times()[:4])
    try:
        yield
    finally:
        cpu = sum(os.times()[:4]) - before
        item.user_properties.append(("cpu", cpu))
    return cpu
