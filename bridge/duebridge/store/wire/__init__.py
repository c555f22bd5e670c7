"""The forms of what goes to the scripts and comes back."""
