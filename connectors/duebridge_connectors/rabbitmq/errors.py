"""Maps pika's exceptions and AMQP reply codes to verdicts, and says which leave a message unsure.

A row applies to the delivery that caused the error. If an error closes the whole connection, sent
deliveries are INDETERMINATE and unsent ones UNAVAILABLE. A test requires a row for every class.
"""

from typing import NamedTuple

from pika import exceptions as vendor
from pika.spec import Basic

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.ports.tls import hinted


class Unencodable(ValueError):
    """AMQP cannot encode this delivery; the message gives the cause."""


class NotSent(Exception):
    """The delivery was never sent; the message gives the cause."""


class HeadersTooLarge(ValueError):
    """Properties and headers do not fit into one frame, as AMQP demands."""


class BrokerBlocked(Exception):
    """The broker takes no messages now: a resource alarm; the message is its reason."""


class PublisherClosed(Exception):
    """The publisher was closed."""


class Unanswered(Exception):
    """The delivery was sent; its outcome is unknown."""


class AmbiguousReturn(Exception):
    """One of two messages with this id was returned; basic.return does not identify it."""


class RabbitErrorRule(NamedTuple):
    """The meaning of an error: verdict, dead letter's reason, and whether a queue may have it.

    The verdict says whether it counts as the message's failure: REJECTED and FAILED do.
    """

    verdict: Verdict
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED  # the message itself is not at fault
    is_unsure: bool = False


# The answer was lost, or does not say which message it is about.
UNKNOWN = RabbitErrorRule(Verdict.INDETERMINATE, is_unsure=True)
# RabbitMQ checks properties, size, permission and exchange before it routes a message.
INVALID = RabbitErrorRule(Verdict.REJECTED, Reason.INVALID)
TOO_LARGE = RabbitErrorRule(Verdict.REJECTED, Reason.TOO_LARGE)
UNAUTHORIZED = RabbitErrorRule(Verdict.TARGET_FAILED, Reason.UNAUTHORIZED)
TARGET_MISSING = RabbitErrorRule(Verdict.TARGET_FAILED, Reason.TARGET_MISSING)
# It came back: no queue was bound.
UNROUTABLE = RabbitErrorRule(Verdict.TARGET_FAILED, Reason.UNROUTABLE)
# One queue refused it; in a fan-out another queue may have taken it.
NACKED = RabbitErrorRule(Verdict.FAILED, is_unsure=True)
# Never sent.
UNAVAILABLE = RabbitErrorRule(Verdict.UNAVAILABLE)

# AMQP 0-9-1, reply codes. One that closes the connection says nothing of any one delivery.
REPLIES: dict[int, RabbitErrorRule] = {
    311: TOO_LARGE,  # content-too-large
    312: UNROUTABLE,  # no-route
    313: UNROUTABLE,  # no-consumers
    320: UNKNOWN,  # connection-forced
    402: UNKNOWN,  # invalid-path: the virtual host
    403: UNAUTHORIZED,  # access-refused
    404: TARGET_MISSING,  # not-found
    405: UNAUTHORIZED,  # resource-locked
    406: INVALID,  # precondition-failed
    501: UNKNOWN,  # frame-error
    502: UNKNOWN,  # syntax-error
    503: UNKNOWN,  # command-invalid
    504: UNKNOWN,  # channel-error
    505: UNKNOWN,  # unexpected-frame
    506: UNKNOWN,  # resource-error
    530: UNKNOWN,  # not-allowed
    540: UNKNOWN,  # not-implemented
    541: UNKNOWN,  # internal-error
}
_SIZE_TEXT = "PRECONDITION_FAILED - message size"

_ROWS: dict[RabbitErrorRule, tuple[type[BaseException], ...]] = {
    # Raised while encoding; never sent.
    INVALID: (
        Unencodable,
        vendor.ShortStringTooLong,
        vendor.UnsupportedAMQPFieldException,
    ),
    TOO_LARGE: (HeadersTooLarge,),
    UNROUTABLE: (vendor.UnroutableError,),
    NACKED: (vendor.NackError,),
    # Raised before anything was written, or while the connection was being opened.
    UNAVAILABLE: (
        BrokerBlocked,
        PublisherClosed,
        NotSent,
        vendor.AuthenticationError,
        vendor.ChannelError,
        vendor.ChannelWrongStateError,
        vendor.ConnectionOpenAborted,
        vendor.ConnectionWrongStateError,
        vendor.IncompatibleProtocolError,
        vendor.InvalidChannelNumber,
        vendor.MethodNotImplemented,
        vendor.NoFreeChannels,
        vendor.ProbableAccessDeniedError,
        vendor.ProbableAuthenticationError,
        vendor.ProtocolVersionMismatch,
        vendor.ReentrancyError,
    ),
    # The connection or its channel ended under it.
    UNKNOWN: (
        AmbiguousReturn,
        Unanswered,
        vendor.AMQPChannelError,
        vendor.AMQPConnectionError,
        vendor.AMQPError,
        vendor.AMQPHeartbeatTimeout,
        vendor.BodyTooLongError,
        vendor.ChannelClosed,
        vendor.ChannelClosedByBroker,  # if it was in flight alone: REPLIES
        vendor.ChannelClosedByClient,
        vendor.ConnectionBlockedTimeout,
        vendor.ConnectionClosed,
        vendor.ConnectionClosedByBroker,
        vendor.ConnectionClosedByClient,
        vendor.InvalidFieldTypeException,
        vendor.InvalidFrameError,
        vendor.ProtocolSyntaxError,
        vendor.StreamLostError,
        vendor.UnexpectedFrameError,
        # Errors of consumers.
        vendor.ConsumerCancelled,
        vendor.DuplicateConsumerTag,
        vendor.DuplicateGetOkCallback,
    ),
}
TABLE: dict[type[BaseException], RabbitErrorRule] = {
    error: row for row, errors in _ROWS.items() for error in errors
}


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an error; INDETERMINATE for a class without a row."""
    return _outcome(TABLE.get(type(error), UNKNOWN), error)


# The outcome of every basic.nack, which gives no reason.
NACK = Outcome(
    NACKED.verdict,
    NACKED.reason,
    vendor.NackError.__name__,
    "a queue refused it (basic.nack): it is full, with overflow reject-publish, or it failed",
    NACKED.is_unsure,
)


def not_sent(error: BaseException) -> Outcome:
    """Return UNAVAILABLE: an error came before the delivery was given to pika."""
    return _outcome(UNAVAILABLE, error)


def unanswered(error: BaseException) -> Outcome:
    """Return INDETERMINATE: the delivery was sent, and an error came instead of an answer."""
    return _outcome(UNKNOWN, error)


def culprit_outcome(closed: vendor.ChannelClosedByBroker) -> Outcome:
    """Return the outcome of the delivery that closed the channel."""
    row = REPLIES.get(closed.reply_code, UNKNOWN)
    if closed.reply_text.startswith(_SIZE_TEXT):
        row = TOO_LARGE
    return _outcome(row, closed)


def root_cause(error: BaseException) -> BaseException:
    """Return the innermost error of a failed connection."""
    several = getattr(error, "exceptions", ())
    inner = several[-1] if several else getattr(error, "exception", None)
    if inner is None and error.args:
        inner = error.args[0]
    return root_cause(inner) if isinstance(inner, BaseException) else error


def unroutable(returned: Basic.Return) -> Outcome:
    """Return TARGET_FAILED for a message that came back by basic.return."""
    verdict, reason, _ = REPLIES.get(returned.reply_code, UNROUTABLE)
    where = f"exchange {returned.exchange!r}, routing key {returned.routing_key!r}"
    text = f"{returned.reply_code} {returned.reply_text}: {where}"
    return Outcome(verdict, reason, vendor.UnroutableError.__name__, text)


def _outcome(row: RabbitErrorRule, error: BaseException) -> Outcome:
    verdict, reason, is_unsure = row
    code = getattr(error, "reply_code", None)
    text = str(error) if code is None else f"{code} {getattr(error, 'reply_text', '')}"
    return Outcome(verdict, reason, type(error).__name__, hinted(text) or repr(error), is_unsure)
