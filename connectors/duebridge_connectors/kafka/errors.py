"""Maps every class of `kafka.errors` to a verdict, and says whether it leaves the record unsure.

The client never retries (`retries=0`), so each error belongs to one attempt. A class without a row,
from a newer client or broker, is INDETERMINATE; a test requires a row for every installed class.
"""

from typing import NamedTuple

from kafka import errors as vendor

from duebridge.ports.publisher import Outcome, Reason, Verdict


class RequestFailed(Exception):
    """No broker answered a metadata request; the message gives the cause."""


class KafkaErrorRule(NamedTuple):
    """The meaning of an error: verdict, dead letter's reason, and whether it may be appended.

    The verdict says whether it counts as the message's failure: REJECTED and FAILED do.
    """

    verdict: Verdict
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED  # the message itself is not at fault
    is_unsure: bool = False


UNKNOWN = KafkaErrorRule(Verdict.INDETERMINATE, is_unsure=True)

_ROWS: dict[KafkaErrorRule, tuple[type[BaseException], ...]] = {
    # The broker checks sizes before it appends.
    KafkaErrorRule(Verdict.REJECTED, Reason.TOO_LARGE): (
        vendor.MessageSizeTooLargeError,
        vendor.RecordListTooLargeError,
    ),
    # The broker validates a whole batch before it appends any of it.
    KafkaErrorRule(Verdict.REJECTED, Reason.INVALID): (
        vendor.InvalidRecordError,
        vendor.PolicyViolationError,
        # Raised by KafkaProducer.send for a record that it cannot serialize.
        TypeError,
        UnicodeEncodeError,
        ValueError,
    ),
    # There is nothing to append to; that a produce request says so is looked up (`attempt.py`).
    KafkaErrorRule(Verdict.TARGET_FAILED, Reason.TARGET_MISSING): (
        vendor.InconsistentTopicIdError,
        vendor.InvalidTopicError,
        vendor.UnknownTopicIdError,
        vendor.UnknownTopicOrPartitionError,
    ),
    # The broker authorizes a request before it reads the records.
    KafkaErrorRule(Verdict.TARGET_FAILED, Reason.UNAUTHORIZED): (
        vendor.AuthorizationError,
        vendor.ClusterAuthorizationFailedError,
        vendor.DelegationTokenAuthorizationFailedError,
        vendor.GroupAuthorizationFailedError,
        vendor.TopicAuthorizationFailedError,
        vendor.TransactionalIdAuthorizationFailedError,
    ),
    # The topic refuses the producer's settings: not the fault of any message.
    KafkaErrorRule(Verdict.TARGET_FAILED, Reason.INVALID): (
        vendor.InvalidRequiredAcksError,
        vendor.UnsupportedCompressionTypeError,
        vendor.UnsupportedForMessageFormatError,  # of an old topic, which may be converted
    ),
    # The partition has no leader, too few replicas or no quota left, and appended nothing. Or the
    # topic refuses the time, which is that of this host's clock and says nothing of the message.
    KafkaErrorRule(Verdict.TARGET_UNAVAILABLE): (
        vendor.BrokerNotAvailableError,
        vendor.EligibleLeadersNotAvailableError,
        vendor.FencedLeaderEpochError,
        vendor.InvalidTimestampError,
        vendor.LeaderNotAvailableError,
        vendor.ListenerNotFoundError,
        vendor.NewLeaderElectedError,
        vendor.NotEnoughReplicasError,  # checked before the append
        vendor.PreferredLeaderNotAvailableError,
        vendor.ReplicaNotAvailableError,
        vendor.ThrottlingQuotaExceededError,
        vendor.UnknownLeaderEpochError,
    ),
    # The partition is in the same trouble, and the leader may have appended before it noticed.
    KafkaErrorRule(Verdict.TARGET_UNAVAILABLE, is_unsure=True): (
        vendor.KafkaStorageError,  # the disk failed during the append
        vendor.NotEnoughReplicasAfterAppendError,
        vendor.NotLeaderForPartitionError,  # also the answer if the lead is lost after the append
    ),
    # The broker refused these records before it appended anything.
    KafkaErrorRule(Verdict.FAILED): (
        vendor.CorruptRecordError,
        vendor.InvalidRequestError,
        vendor.KafkaError,  # a valid record in a batch with an invalid one
        vendor.UnsupportedVersionError,
    ),
    # Never sent.
    KafkaErrorRule(Verdict.UNAVAILABLE): (
        vendor.IllegalSaslStateError,
        vendor.IncompatibleBrokerVersion,
        vendor.KafkaConfigurationError,
        vendor.MetadataEmptyBrokerList,
        vendor.NodeNotReadyError,
        vendor.SaslAuthenticationFailedError,
        vendor.SecurityDisabledError,
        vendor.TooManyInFlightRequests,
        vendor.UnrecognizedBrokerVersion,
        vendor.UnsupportedSaslMechanismError,
    ),
    # The answer was lost, or is ambiguous.
    UNKNOWN: (
        vendor.BrokerResponseError,
        vendor.Cancelled,
        vendor.CorrelationIdError,
        vendor.IllegalStateError,  # the producer was closed meanwhile
        vendor.InvalidMetadataError,
        vendor.InvalidReceiveError,
        vendor.KafkaConnectionError,
        vendor.KafkaProtocolError,
        vendor.KafkaTimeoutError,
        vendor.NetworkExceptionError,
        vendor.RequestTimedOutError,  # appended, but not replicated in time
        vendor.RetriableError,
        vendor.StaleMetadata,
        vendor.UnknownError,
    ),
}

# Errors of requests that a producer never sends (consumers, groups, transactions, controllers,
# quotas, tokens). They would prove nothing about a record.
_NEVER_EXPECTED: tuple[type[BaseException], ...] = (
    vendor.BrokerIdNotRegisteredError,
    vendor.CommitFailedError,
    vendor.ConcurrentTransactionsError,
    vendor.CoordinatorLoadInProgressError,
    vendor.CoordinatorNotAvailableError,
    vendor.DelegationTokenAuthDisabledError,
    vendor.DelegationTokenExpiredError,
    vendor.DelegationTokenNotFoundError,
    vendor.DelegationTokenOwnerMismatchError,
    vendor.DelegationTokenRequestNotAllowedError,
    vendor.DuplicateBrokerRegistrationError,
    vendor.DuplicateResourceError,
    vendor.DuplicateSequenceNumberError,
    vendor.DuplicateVoterError,
    vendor.ElectionNotNeededError,
    vendor.FeatureUpdateFailedError,
    vendor.FencedInstanceIdError,
    vendor.FencedMemberEpochError,
    vendor.FencedStateEpochError,
    vendor.FetchSessionIdNotFoundError,
    vendor.FetchSessionTopicIdError,
    vendor.GroupIdNotFoundError,
    vendor.GroupMaxSizeReachedError,
    vendor.GroupSubscribedToTopicError,
    vendor.IllegalArgumentError,
    vendor.IllegalGenerationError,
    vendor.InconsistentClusterIdError,
    vendor.InconsistentGroupProtocolError,
    vendor.InconsistentVoterSetError,
    vendor.IneligibleReplicaError,
    vendor.InvalidCommitOffsetSizeError,
    vendor.InvalidConfigurationError,
    vendor.InvalidFetchRequestError,
    vendor.InvalidFetchSessionEpochError,
    vendor.InvalidGroupIdError,
    vendor.InvalidPartitionsError,
    vendor.InvalidPrincipalTypeError,
    vendor.InvalidProducerEpochError,
    vendor.InvalidProducerIdMappingError,
    vendor.InvalidRecordStateError,
    vendor.InvalidRegistrationError,
    vendor.InvalidReplicationAssignmentError,
    vendor.InvalidReplicationFactorError,
    vendor.InvalidSessionTimeoutError,
    vendor.InvalidShareSessionEpochError,
    vendor.InvalidTransactionTimeoutError,
    vendor.InvalidTxnStateError,
    vendor.InvalidUpdateVersionError,
    vendor.InvalidVoterKeyError,
    vendor.LogDirNotFoundError,
    vendor.LogTruncationError,
    vendor.MemberIdRequiredError,
    vendor.MismatchedEndpointTypeError,
    vendor.NoError,
    vendor.NoOffsetForPartitionError,
    vendor.NoReassignmentInProgressError,
    vendor.NonEmptyGroupError,
    vendor.NotControllerError,
    vendor.NotCoordinatorError,
    vendor.OffsetMetadataTooLargeError,
    vendor.OffsetMovedToTieredStorageError,
    vendor.OffsetNotAvailableError,
    vendor.OffsetOutOfRangeError,
    vendor.OperationNotAttemptedError,
    vendor.OutOfOrderSequenceNumberError,
    vendor.PositionOutOfRangeError,
    vendor.PrincipalDeserializationFailureError,
    vendor.ProducerFencedError,
    vendor.QuotaViolationError,
    vendor.ReassignmentInProgressError,
    vendor.RebalanceInProgressError,
    vendor.ResourceNotFoundError,
    vendor.ShareSessionNotFoundError,
    vendor.SnapshotNotFoundError,
    vendor.StaleBrokerEpochError,
    vendor.StaleControllerEpochError,
    vendor.StaleMemberEpochError,
    vendor.TelemetryTooLargeError,
    vendor.TopicAlreadyExistsError,
    vendor.TopicDeletionDisabledError,
    vendor.TransactionAbortableError,
    vendor.TransactionAbortedError,
    vendor.TransactionCoordinatorFencedError,
    vendor.TransactionalIdNotFoundError,
    vendor.UnacceptableCredentialError,
    vendor.UnknownBrokerIdError,
    vendor.UnknownControllerIdError,
    vendor.UnknownMemberIdError,
    vendor.UnknownProducerIdError,
    vendor.UnknownSubscriptionIdError,
    vendor.UnreleasedInstanceIdError,
    vendor.UnstableOffsetCommitError,
    vendor.UnsupportedAssignorError,
    vendor.UnsupportedCodecError,
    vendor.UnsupportedEndpointTypeError,
    vendor.VoterNotFoundError,
)

TABLE: dict[type[BaseException], KafkaErrorRule] = {
    **dict.fromkeys(_NEVER_EXPECTED, UNKNOWN),
    **{error: row for row, errors in _ROWS.items() for error in errors},
}

_HINTS: dict[type[BaseException], str] = {
    vendor.InvalidTimestampError: "a record's time is this host's: compare its clock with the "
    "broker's, and the topic's message.timestamp.*",
}

# The partition may recover within the publish.
_TEMPORARY = frozenset(
    {
        vendor.LeaderNotAvailableError,
        vendor.NotEnoughReplicasError,
        vendor.NotLeaderForPartitionError,
        vendor.ThrottlingQuotaExceededError,
    }
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an error; INDETERMINATE for a class without a row."""
    verdict, reason, is_unsure = TABLE.get(type(error), UNKNOWN)
    words = with_hint(type(error), words_of(error))
    return Outcome(verdict, reason, type(error).__name__, words, is_unsure)


def with_hint(kind: type[BaseException], words: str) -> str:
    """Return an error's text, and what to look at where that is on this host."""
    return f"{words} ({_HINTS[kind]})" if kind in _HINTS else words


def words_of(error: BaseException) -> str:
    """Return an error's text without the class name and number that `str` puts before it."""
    if not isinstance(error, vendor.KafkaError):
        return str(error)
    words = error.args[0] if error.args else None
    if isinstance(words, BaseException):
        return words_of(words)
    return str(words or getattr(error, "description", None) or type(error).__name__)


def is_temporary(kind: type[BaseException]) -> bool:
    """Whether a retry within the same publish may succeed after an error of this class."""
    return kind in _TEMPORARY
