"""Run a benchmark: ``python -m fairseq_mega.lab.benchmarks NAME [--help]``."""

from fairseq_mega.lab.benchmarks.command import main

main()
