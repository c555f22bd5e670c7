"""What a connector implements and uses: broker type, publisher, settings, findings, TLS."""
