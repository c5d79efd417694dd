"""HTML of tables and pictures."""

import base64
import html
import re
from pathlib import Path

from fairseq_mega.lab.runs.text_tables import Table

LONGEST_NUMBER = 22  # characters; longer cells are treated as words
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def cell(text: str) -> str:
    """Return a cell of Markdown: bold, code, and the text of a link, whose target is not part of the page."""
    text = html.escape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def table(found: Table) -> str:
    """Return a table that scrolls separately on a narrow screen; words are aligned left, numbers right.

    Columns of code after the first have a class of their own, so that a narrow screen can leave them out.
    """
    columns = [[row[column] for row in found.rows] for column in range(len(found.columns))]
    kinds = [' class="text"' if max(map(len, texts)) > LONGEST_NUMBER else "" for texts in columns]
    for number, texts in enumerate(columns):
        if number and all(text.startswith("`") for text in texts):
            kinds[number] = ' class="text code"'
    heads = "".join(f'<th scope="col"{kind}>{cell(text)}</th>' for kind, text in zip(kinds, found.columns))
    rows = []
    for first, *others in found.rows:
        below = ' class="below"' if first.startswith("  ") else ""
        cells = "".join(f"<td{kind}>{cell(text)}</td>" for kind, text in zip(kinds[1:], others))
        rows.append(f'<tr><th scope="row"{below}>{cell(first)}</th>{cells}</tr>')
    body = "\n".join(rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def picture(path: Path, title: str) -> str:
    """Return an image as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = html.escape(title)
    source = f"data:{TYPES[path.suffix]};base64,{data}"
    return f'<figure><img alt="{text}" src="{source}"><figcaption>{text}</figcaption></figure>'


def folded(title: str, text: str) -> str:
    """Return the HTML of a text that a click on its title shows."""
    return f"<details><summary>{html.escape(title)}</summary>\n{text}\n</details>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a section with a link at the head of the page."""
    content = "\n".join(parts)
    return f'<section id="{name}">\n<h2>{html.escape(title)}</h2>\n{content}\n</section>'
