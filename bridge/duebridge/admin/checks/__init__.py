"""What may be wrong: with brokers, targets, rights, intakes and a drain; `doctor` asks them all."""
