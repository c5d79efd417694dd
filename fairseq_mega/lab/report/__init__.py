"""Results, tables and plots."""
