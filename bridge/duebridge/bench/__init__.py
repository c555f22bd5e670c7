"""What the bridge costs, measured beside the same client publishing alone: `duebridge bench`."""
