"""Takes messages in from a RabbitMQ queue or stream. Only `models` imports no client."""
