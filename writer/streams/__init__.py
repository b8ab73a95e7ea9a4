"""Redis: reading runs' streams, settling them, owning partitions. Nothing else in the writer uses
it.
"""
