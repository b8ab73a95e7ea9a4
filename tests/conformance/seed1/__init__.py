"""The second seed's run repository: each of its cases by its mark, in the `codemation` dialect."""
