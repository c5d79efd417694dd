"""Options of the models: the table of those that models share, and what is made of it."""
