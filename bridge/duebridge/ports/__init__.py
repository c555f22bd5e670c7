"""The ports that a broker's connector implements."""
