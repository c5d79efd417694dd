"""Options of the models: one class for each thing that models share, and for each model the class that joins them."""
