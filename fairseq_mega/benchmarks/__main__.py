"""Run a benchmark: ``python -m fairseq_mega.benchmarks NAME [--help]``."""

from fairseq_mega.benchmarks.command import main

main()
