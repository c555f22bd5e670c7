"""Schedule, reschedule and cancel reminders. Needs no broker: a worker delivers them later."""

from duebridge import Envelope, Producer

with Producer.from_config("duebridge.yaml") as producer:
    receipt = producer.schedule("reminders", b"call back", delay="15m", key=b"customer-7")
    print(f"{receipt.status}: due at {receipt.due_at_ms}")

    # The id is yours to choose. A repeated call with the same content is harmless.
    for _ in range(2):
        receipt = producer.schedule("reminders", b"renew", delay="30d", id="contract-42")
        print(f"{receipt.id}: {receipt.status}")
    print("reschedule:", producer.reschedule("reminders", "contract-42", delay="60d"))
    print("cancel:", producer.cancel("reminders", "contract-42"))
    print("cancel again:", producer.cancel("reminders", "contract-42"))

    # Many at once: one receipt for each, in order; what cannot be stored is refused alone.
    envelopes = [Envelope.new(b"newsletter", delay="1h", id=f"reader-{n}") for n in range(1000)]
    receipts = producer.schedule_many("reminders", envelopes)
    print(sum(each.status == "accepted" for each in receipts), "accepted")
