"""Seeded schedules: real core, real loop, real files; simulated Redis, hosts, clocks and deaths."""
