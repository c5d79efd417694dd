"""Speed and memory: cases, measuring, and one command for all of them."""
