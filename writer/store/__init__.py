"""SQLite: one file per partition, written here and nowhere else."""
