"""Options of the models: a table of shared options, and the dataclasses and flags derived from it."""
