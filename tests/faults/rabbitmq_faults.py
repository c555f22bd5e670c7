"""What only RabbitMQ does: alarm, exchange or binding gone, queue full, connection closed."""

from tests.faults.brokers import RabbitSide
from tests.faults.rig import Rig
from tests.faults.scenario import Scenario

LEAST_LENGTH = '{"max-length":10,"overflow":"reject-publish"}'


def side_of(rig: Rig) -> RabbitSide:
    assert isinstance(rig.side, RabbitSide)
    return rig.side


def raise_alarm(rig: Rig) -> None:
    with rig.fault("memory alarm") as fault:
        rig.stack.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1")
        try:
            rig.see_logged(fault, '"rabbitmq_blocked"')
        finally:
            rig.stack.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


def delete_exchange(rig: Rig) -> None:
    with rig.fault("exchange deleted and made again") as fault:
        side_of(rig).delete_exchange()
        rig.see_logged(fault, '"target_failed"')
        side_of(rig).declare()


def unbind(rig: Rig) -> None:
    with rig.fault("binding deleted and made again") as fault:
        side_of(rig).unbind()
        rig.see_logged(fault, '"target_failed"')
        side_of(rig).declare()


def fill_queue(rig: Rig) -> None:
    side = side_of(rig)
    with rig.fault("queue full, reject-publish") as fault:
        rig.stack.rabbitmqctl("set_policy", side.name, f"^{side.name}$", LEAST_LENGTH)
        side.pause()
        rig.see_logged(fault, '"retried"')
        side.resume()
        rig.stack.rabbitmqctl("clear_policy", side.name)


def freeze_beyond_heartbeat(rig: Rig) -> None:
    with rig.fault("broker frozen beyond the heartbeat") as fault, rig.stack.frozen("rabbitmq"):
        rig.see_logged(fault, '"rabbitmq_not_connected"')


def close_connections(rig: Rig) -> None:
    with rig.fault("connections closed by the management side") as fault:
        connected = rig.logged('"rabbitmq_connected"')
        rig.stack.rabbitmqctl("close_all_connections", "a fault test")
        rig.take(
            fault, "workers connected anew", lambda: rig.logged('"rabbitmq_connected"') > connected
        )


RABBITMQ = ("rabbitmq",)
SCENARIOS = [
    Scenario("memory_alarm", raise_alarm, brokers=RABBITMQ),
    Scenario("exchange_deleted", delete_exchange, brokers=RABBITMQ),
    Scenario("binding_deleted", unbind, brokers=RABBITMQ),
    Scenario("queue_full", fill_queue, brokers=RABBITMQ, may_bury=True),
    Scenario("heartbeat_missed", freeze_beyond_heartbeat, brokers=RABBITMQ),
    Scenario("connections_closed", close_connections, brokers=RABBITMQ),
]
