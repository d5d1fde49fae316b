"""The threads that do what is asked, and who waits for them: what a client asks is stopped when it goes away."""

from collections.abc import Callable
from typing import Any, TypeVar

from anyio import CapacityLimiter, create_task_group, sleep, to_thread
from starlette.requests import Request

from feed_assets.operation import Does
from feed_assets.sql.questions import Question, asking

_READERS, _OTHERS, _WAITING = 16, 4, 2
"""How many requests are at work at once, that read, for each other right, and that wait for others. With two
connections for each that reads and three for each that writes, all have less than the 100 that PostgreSQL gives by
default.
"""
_STOP_SECONDS = 0.1
_Answer = TypeVar("_Answer")


class Threads:
    """The threads of a server. Each right has its own, so that long questions hold up no notification, and what waits
    for others, too, which is of none.
    """

    def __init__(self) -> None:
        self._limiters: dict[Does | None, CapacityLimiter] = {each: CapacityLimiter(_OTHERS) for each in Does}
        self._limiters |= {Does.READS: CapacityLimiter(_READERS), None: CapacityLimiter(_WAITING)}

    async def answer_who_waits(
        self, request: Request, right: Does | None, function: Callable[..., _Answer], *arguments: Any
    ) -> _Answer:
        """Call a function in a thread. A client that goes away stops its question, if that only reads."""
        limiter = self._limiters[right]
        if right is not Does.READS:
            return await to_thread.run_sync(function, *arguments, limiter=limiter)
        question, answers = Question(), list[_Answer]()

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            while True:  # an interrupt between two statements has none to interrupt
                await to_thread.run_sync(question.stop)
                await sleep(_STOP_SECONDS)

        async with create_task_group() as group:
            group.start_soon(watch)
            with asking(question):
                answers.append(await to_thread.run_sync(function, *arguments, limiter=limiter))
            group.cancel_scope.cancel()
        return answers[0]
