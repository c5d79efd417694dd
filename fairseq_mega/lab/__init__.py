"""Laboratory: data, recipes, their runs, reports and measurements; the library does not import it."""
