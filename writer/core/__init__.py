"""Pure decisions: what becomes of a run, one message after the other."""
