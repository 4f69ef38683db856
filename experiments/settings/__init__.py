"""What a configuration may say: its choices, checks, protocols, and messages for the user."""
