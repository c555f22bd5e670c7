"""A member of a consumer group by librdkafka (confluent-kafka)."""
