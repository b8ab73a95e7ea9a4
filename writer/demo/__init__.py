"""The demonstration: simulated agents in processes of their own, and the proof that all arrived."""
