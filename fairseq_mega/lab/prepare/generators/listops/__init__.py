"""ListOps: nested operations on lists of digits, such as ``[MAX 2 9 [MIN 4 7 ] ]``, whose value is a digit."""
