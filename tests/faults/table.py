"""Every scenario, by name; and the slice of them that the default suite runs."""

from importlib import import_module

NAMES = ("worker", "store", "broker", "target", "letter", "network", "intake")
FAMILIES = [import_module(f"tests.faults.scenarios.{name}_faults") for name in NAMES]
SCENARIOS = {each.name: each for family in FAMILIES for each in family.SCENARIOS}
MATRIX = [(each.name, broker) for each in SCENARIOS.values() for broker in each.brokers]
SLICE = [
    ("worker_killed", "kafka"),
    ("worker_frozen", "rabbitmq"),
    ("store_killed", "rabbitmq"),
    ("broker_frozen", "kafka"),
    ("broker_killed", "rabbitmq"),
    ("binding_deleted", "rabbitmq"),
    ("broker_link_replies_lost", "kafka"),
    ("store_link_replies_lost", "rabbitmq"),
    ("fan_out_full", "rabbitmq"),
    ("reopened", "kafka"),
    ("intake_killed", "rabbitmq"),
]
# Of an intake each fault once, by either source where both go one way; `make proof` has them all.
TWINS = {
    ("intake_killed", "kafka"),
    ("intake_of_two_killed", "rabbitmq"),
    ("intake_terminated", "kafka"),
    ("intake_store_killed", "rabbitmq"),
    ("intake_refuses_many", "rabbitmq"),
    ("intake_letters_missing", "kafka"),
}
LONG_SLICE = [
    ("broker_frozen", "rabbitmq"),
    ("broker_killed", "kafka"),
    ("worker_terminated", "kafka"),
    ("store_scripts_flushed", "kafka"),
    ("store_full", "rabbitmq"),
    ("store_clients_killed", "kafka"),
    ("files_exhausted", "rabbitmq"),
    ("upgraded_and_back", "rabbitmq"),
    ("not_enough_replicas", "kafka"),
    ("slow_link", "kafka"),
    ("partition_leaderless", "kafka"),
    ("many_held", "rabbitmq"),
    ("own_target_missing", "rabbitmq"),
    ("letters_missing", "rabbitmq"),
    ("letters_rejected", "kafka"),
    ("letters_slow", "kafka"),
    ("letters_elsewhere", "rabbitmq"),
    ("stop_amid_letters", "rabbitmq"),
    ("stopped_beside_silent_store", "kafka"),
    *(row for row in MATRIX if row[0].startswith("intake_") and row not in {*SLICE, *TWINS}),
]
