"""What an operator does: look, free, send again, rebuild, verify, back up, restore."""
