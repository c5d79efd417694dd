"""Corpora: generated, downloaded, unpacked, cleaned and written in the form that the tasks read."""
