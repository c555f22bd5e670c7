"""Publishes batches with confirms, over pika."""
