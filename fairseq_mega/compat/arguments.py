"""How fairseq reads its command line."""

import functools
import sys

from .patching import replace_in_fairseq


def separate_bf16_from_tpu() -> None:
    """Make --bf16 and --memory-efficient-bf16 run on CPU and GPU: fairseq's parser turns them into --tpu."""
    from fairseq import options

    original = options.parse_args_and_arch
    if hasattr(original, "separates_bf16"):
        return

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, parse_known=False, *args, **kwargs):
        parsed = original(parser, input_args, parse_known, *args, **kwargs)
        namespace = parsed[0] if parse_known else parsed
        if getattr(namespace, "bf16", False):
            given = sys.argv[1:] if input_args is None else input_args
            namespace.tpu = "--tpu" in given
        return parsed

    parse_args_and_arch.separates_bf16 = True  # type: ignore[attr-defined]
    replace_in_fairseq("parse_args_and_arch", original, parse_args_and_arch)
