"""Turns what a client says into errors of the port; the verdicts are the publisher's table."""

from kafka import errors as vendor

from duebridge.errors import BridgeError, ConfigError
from duebridge.ports.publisher import BrokerUnavailable, Reason
from duebridge_connectors.kafka.errors import TABLE as VERDICTS
from duebridge_connectors.kafka.errors import UNKNOWN, KafkaErrorRule, words_of

_MISSING = frozenset({Reason.TARGET_MISSING, Reason.UNAUTHORIZED})

# The group has moved on, or the topic has: whoever reads next begins at the last commit.
REFUSALS: frozenset[type[BaseException]] = frozenset(
    {
        vendor.CommitFailedError,
        vendor.FencedInstanceIdError,
        vendor.FencedMemberEpochError,
        vendor.IllegalGenerationError,
        vendor.RebalanceInProgressError,
        vendor.StaleMemberEpochError,
        vendor.UnknownMemberIdError,
        vendor.UnknownTopicIdError,
        vendor.UnknownTopicOrPartitionError,
    }
)


def failure_of(row: KafkaErrorRule, name: str, words: str) -> BridgeError:
    """Return a `ConfigError` where topic or right are missing, else a `BrokerUnavailable`."""
    text = f"{name}: {words}" if words and words != name else name
    return ConfigError(text) if row.reason in _MISSING else BrokerUnavailable(text)


def failure_from(error: BaseException) -> BridgeError:
    """Return the failure for one of kafka-python's errors, or for a record that it cannot read."""
    if isinstance(error, vendor.UnsupportedCodecError):
        return ConfigError(f"{words_of(error)}; install it: pip install 'kafka-python[lz4,snappy]'")
    row = VERDICTS.get(type(error), UNKNOWN) if isinstance(error, vendor.KafkaError) else UNKNOWN
    return failure_of(row, type(error).__name__, words_of(error))
