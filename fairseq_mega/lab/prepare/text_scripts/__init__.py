"""What the scripts prepare_*.sh do: a text for language modelling, from its source to binarised data."""
