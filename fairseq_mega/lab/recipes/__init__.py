"""One file for each trained number of the papers' tables and figures, and the runner that measures it again."""
