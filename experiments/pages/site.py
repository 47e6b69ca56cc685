"""How the site differs from the pages on their own (a hook of mkdocs.yml).

Its home page begins as README does. A link to a page shows the page's title, where the
files name the file.
"""

import re
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"
END = "\n## Pre-training\n"
_LINK = re.compile(r"\[(?:docs/)?(\w+\.md)\]\((?=(?:docs/)?\1)")


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Returns the Markdown of a page, as the site shows it."""
    if page.file.src_uri == "index.md":
        start = README.read_text("utf-8").partition(END)[0]
        markdown = f"{start.replace('](docs/', '](')}\n#{markdown}"
    return _LINK.sub(
        lambda link: f"[{files.get_file_from_path(link[1]).page.title}](", markdown
    )
