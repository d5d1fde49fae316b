"""Answers who waits: what a client asks is stopped when it goes away."""

from collections.abc import Callable
from typing import Any, TypeVar

from anyio import create_task_group, sleep
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from feed_assets.operation import Does, Operation
from feed_assets.sql.questions import Question, asking

_STOP_SECONDS = 0.1
_Answer = TypeVar("_Answer")


async def answer_who_waits(
    request: Request, operation: Operation, function: Callable[..., _Answer], *arguments: Any
) -> _Answer:
    """Call a function in a thread. A client that goes away stops its question, if the operation only reads."""
    if operation.does is not Does.READS:
        return await run_in_threadpool(function, *arguments)
    question, answers = Question(), list[_Answer]()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        while True:  # an interrupt between two statements has none to interrupt
            await run_in_threadpool(question.stop)
            await sleep(_STOP_SECONDS)

    async with create_task_group() as group:
        group.start_soon(watch)
        with asking(question):
            answers.append(await run_in_threadpool(function, *arguments))
        group.cancel_scope.cancel()
    return answers[0]
