"""What rounds ask of senders: to hand one letter to a receiver, and to say how that ended."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from feed_assets.state.messages import OutboxMessage

SECONDS = 10.0
"""How long a receiver may take to answer."""


class Verdict(StrEnum):
    """How a receiver has answered.

    REFUSED says that it will never take this letter, FAILED that it has not taken it now. AWAY says that it does not
    answer at all, so that other letters need not be tried.
    """

    DELIVERED = "delivered"
    REFUSED = "refused"
    FAILED = "failed"
    AWAY = "away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it leaves: the `document` for programs; `subject`, `text` and `html` for people. Without secrets."""

    message: OutboxMessage
    document: dict[str, Any]
    subject: str
    text: str
    html: str

    @property
    def key(self) -> str:
        """The key by which a receiver recognises a repeat."""
        return self.message.idempotency_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer to a letter, and why it was not taken."""

    verdict: Verdict
    error: str | None = None


DELIVERED = Outcome(verdict=Verdict.DELIVERED)


class Sender(ABC):
    """A connection with a receiver. Each thread has its own.

    `send` returns within about `SECONDS`, raises nothing that a receiver can cause, and may be called again after
    any outcome. A letter may reach the receiver although the outcome says otherwise.
    """

    @abstractmethod
    def send(self, letter: Letter) -> Outcome:
        """Hand over a letter."""

    def close(self) -> None:
        """End the connection. The sender is not used any more."""
        return
