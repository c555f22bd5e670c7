"""The verdict of each Kafka error: one row for every class of `kafka.errors`.

The client never retries by itself (`retries=0`): each error answers one attempt. A class without a
row, which only a newer client or broker can bring, is INDETERMINATE; a test demands a row for every
class of the installed client.
"""

from kafka import errors as vendor

from duebridge.ports.publisher import Outcome, Reason, Verdict


class RequestFailed(Exception):
    """No broker answered a request for metadata; the message says why."""


Row = tuple[Verdict, Reason]

# What a dead letter says when the fault is not in the message: its attempts ran out.
_EXHAUSTED = Reason.ATTEMPTS_EXHAUSTED
UNKNOWN: Row = (Verdict.INDETERMINATE, _EXHAUSTED)

_ROWS: dict[Row, tuple[type[BaseException], ...]] = {
    (Verdict.REJECTED, Reason.TOO_LARGE): (
        vendor.MessageSizeTooLargeError,
        vendor.RecordListTooLargeError,
    ),
    (Verdict.REJECTED, Reason.INVALID): (
        vendor.InvalidRecordError,
        vendor.InvalidTimestampError,
        vendor.PolicyViolationError,
        vendor.UnsupportedForMessageFormatError,
        # What KafkaProducer.send raises for a record that it cannot carry.
        TypeError,
        UnicodeEncodeError,
        ValueError,
    ),
    (Verdict.TARGET_FAILED, Reason.TARGET_MISSING): (
        vendor.InconsistentTopicIdError,
        vendor.InvalidTopicError,
        vendor.UnknownTopicIdError,
        vendor.UnknownTopicOrPartitionError,
    ),
    (Verdict.TARGET_FAILED, Reason.UNAUTHORIZED): (
        vendor.AuthorizationError,
        vendor.ClusterAuthorizationFailedError,
        vendor.DelegationTokenAuthorizationFailedError,
        vendor.GroupAuthorizationFailedError,
        vendor.TopicAuthorizationFailedError,
        vendor.TransactionalIdAuthorizationFailedError,
    ),
    # The topic refuses how we write, not what: no message of it should die of that.
    (Verdict.TARGET_FAILED, Reason.INVALID): (
        vendor.InvalidRequiredAcksError,
        vendor.UnsupportedCompressionTypeError,
    ),
    # The leader, or who should be it, refused before it appended anything.
    (Verdict.FAILED, _EXHAUSTED): (
        vendor.BrokerNotAvailableError,
        vendor.CorruptRecordError,
        vendor.EligibleLeadersNotAvailableError,
        vendor.FencedLeaderEpochError,
        vendor.InvalidRequestError,
        vendor.KafkaError,  # the sender's word for a good record in a batch with a bad one
        vendor.LeaderNotAvailableError,
        vendor.ListenerNotFoundError,
        vendor.NewLeaderElectedError,
        vendor.NotEnoughReplicasError,
        vendor.PreferredLeaderNotAvailableError,
        vendor.ReplicaNotAvailableError,
        vendor.ThrottlingQuotaExceededError,
        vendor.UnknownLeaderEpochError,
        vendor.UnsupportedVersionError,
    ),
    # No connection carried it.
    (Verdict.UNAVAILABLE, _EXHAUSTED): (
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
    # It may be stored: the answer was lost, or leaves that open.
    UNKNOWN: (
        vendor.BrokerResponseError,
        vendor.Cancelled,
        vendor.CorrelationIdError,
        vendor.IllegalStateError,  # the producer was closed under it
        vendor.InvalidMetadataError,
        vendor.InvalidReceiveError,
        vendor.KafkaConnectionError,
        vendor.KafkaProtocolError,
        vendor.KafkaStorageError,
        vendor.KafkaTimeoutError,
        vendor.NetworkExceptionError,
        vendor.NotEnoughReplicasAfterAppendError,
        vendor.NotLeaderForPartitionError,  # also said of what it appended, then lost the lead
        vendor.RequestTimedOutError,
        vendor.RetriableError,
        vendor.StaleMetadata,
        vendor.UnknownError,
    ),
}

# Answers to other requests than ours: to consumers, groups, transactions, controllers, quotas and
# tokens. Should one ever come, it says nothing of the record.
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

TABLE: dict[type[BaseException], Row] = {
    **dict.fromkeys(_NEVER_EXPECTED, UNKNOWN),
    **{error: row for row, errors in _ROWS.items() for error in errors},
}

# The partition is between two leaders, or short of replicas: it may recover within the publish.
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
    verdict, reason = TABLE.get(type(error), UNKNOWN)
    return Outcome(verdict, reason, type(error).__name__, str(error))


def is_temporary(error: BaseException) -> bool:
    """Whether another send within the same publish may succeed."""
    return type(error) in _TEMPORARY
