"""One module a group of figures, each with `measure(room)`. Found by listing this folder.

`LONG = True` in a module keeps it out of a run without `--long`; `profile(room)` yields lines that
say where the time goes, for `--profile`.
"""
