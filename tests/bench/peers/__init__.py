"""What we are measured against: other writers, and the limits of the machine."""
