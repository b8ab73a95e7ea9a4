"""What travels between hosts and the writer: the published language of statewriter."""
