"""A member of a consumer group by kafka-python, whose batches are read here."""
