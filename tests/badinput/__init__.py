"""What broken, careless and hostile hosts send: refused with one reason, kept whole, harmless."""
