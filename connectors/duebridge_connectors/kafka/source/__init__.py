"""Takes messages in from a Kafka topic. Imports a client only when a source opens."""

from collections.abc import Mapping

from duebridge.ports.source import Source, SourcePlan


def open_source(settings: Mapping[str, object], plan: SourcePlan) -> Source:
    """Return a source for a broker of `type: kafka`; it connects on first use.

    Raises `ConfigError` for invalid settings.
    """
    from duebridge_connectors.kafka.login import Login
    from duebridge_connectors.kafka.settings import client_of
    from duebridge_connectors.kafka.source.settings import kafka_python_config
    from duebridge_connectors.kafka.source.source import KafkaSource

    login, topic = Login(settings), str(plan.source["topic"])
    if client_of(settings) == "librdkafka":
        from duebridge_connectors.kafka.source.librdkafka.consumer import LibrdkafkaConsumer
        from duebridge_connectors.kafka.source.settings import group_config, librdkafka_config

        common, group = librdkafka_config(settings), group_config(plan)
        return KafkaSource(lambda: LibrdkafkaConsumer(common, group, login, topic), plan)
    from duebridge_connectors.kafka.source.kafka_python.consumer import KafkaPythonConsumer

    config = kafka_python_config(settings, plan)
    return KafkaSource(lambda: KafkaPythonConsumer(config, login, topic), plan)
