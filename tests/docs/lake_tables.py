"""The tables of a lake as the page shows them; run it to write them anew."""

from postroad.pipeline.schema import TABLES
from tests.conftest import PROJECT

PAGE = PROJECT / "docs/pipeline.md"
BEGIN = "<!-- tables: made by python -m tests.docs.lake_tables -->\n"
END = "<!-- end of tables -->"


def section() -> str:
    """What stands between the two marks."""
    parts = []
    for table in TABLES.values():
        rows = "\n".join(f"| `{name}` | `{kind}` | {said} |" for name, kind, said in table.columns)
        parts.append(
            f"### {table.name}\n\nOne row per {table.row}; its day is that of {table.dated_by}.\n\n"
            f"| column | type | |\n| --- | --- | --- |\n{rows}\n"
        )
    return "\n".join(parts)


def page() -> str:
    """The page with the section as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + "\n" + section() + "\n" + text[after:]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
