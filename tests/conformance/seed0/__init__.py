"""The first seed's run store: each of its cases by its mark, through our commands and reads."""
