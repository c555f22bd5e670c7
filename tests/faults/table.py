"""Every scenario, by name; and the slice of them that the default suite runs."""

from tests.faults import broker_faults, network_faults, store_faults, worker_faults

FAMILIES = (worker_faults, store_faults, broker_faults, network_faults)
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
]
LONG_SLICE = [
    ("broker_frozen", "rabbitmq"),
    ("broker_killed", "kafka"),
    ("worker_terminated", "kafka"),
    ("store_scripts_flushed", "kafka"),
    ("store_full", "rabbitmq"),
    ("store_clients_killed", "kafka"),
]
