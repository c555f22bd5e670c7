"""The checks of `doctor`: brokers, targets, rights, intakes and a drain."""
