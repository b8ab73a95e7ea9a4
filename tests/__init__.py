"""The tests. A package, so that `tests.support` is ours and never an installed one."""
