"""Pure functions on tensors: one folder per operation, each with a readable reference beside its fast paths."""
