"""The daemon that applies commands to SQLite, and its command line."""
