"""Options that hydra has parsed, kept for the next command of the process: each has three hundred, mostly the same."""

import copy
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser


def keep_parsed() -> None:
    """Parse a text once; who asks for it again gets a copy. An error is raised anew each time."""
    parse = OverridesParser.parse_rule
    parser = OverridesParser.create()  # with hydra's own functions, as each has

    @lru_cache(maxsize=None)
    def parsed(text: str, rule: str) -> Any:
        return parse(parser, text, rule)

    def parse_rule(self: OverridesParser, s: str, rule_name: str) -> Any:
        return copy.deepcopy(parsed(s, rule_name))

    OverridesParser.parse_rule = parse_rule
