"""One HTML page with all results."""

from .writing import write_page

__all__ = ["write_page"]
