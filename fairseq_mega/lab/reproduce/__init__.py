"""The runner of recipes: from the data to the table."""
