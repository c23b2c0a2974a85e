"""The pages of the five documents say what each of their names, paths, columns and defaults is here."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.documents.reading import names_in
from tests.requirements import PROJECT, catalogue

NAMES: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "names.toml").read_text())
SOURCES = dict(zip(NAMES, sorted((PROJECT.parent / "shared" / "sources").glob("00*.txt")), strict=False))  # fmt: skip
WORDS = re.compile(r"`([^`]+)`")


def rows(prefix: str) -> dict[str, str]:
    """The first table of a page: what is said of each name."""
    page = PROJECT / "docs" / "documents" / catalogue().documents[prefix].page
    table = (
        page.read_text(encoding="utf-8")
        .partition("| in the document | here |")[2]
        .partition("\n\n")[0]
    )
    cells = [
        line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| `")
    ]
    return {name: said for first, said in cells for name in WORDS.findall(first)}


@pytest.mark.parametrize("prefix", NAMES)
def test_the_table_of_a_page_has_every_name_of_its_document(prefix: str) -> None:
    said = rows(prefix)
    assert set(NAMES[prefix]) - set(said) == set()
    assert set(said) - set(NAMES[prefix]) == set(), "the document does not have it"
    assert all(said.values())


@pytest.mark.parametrize("prefix", NAMES)
def test_what_is_not_met_is_explained_below_where_the_table_says_so(prefix: str) -> None:
    page = (PROJECT / "docs" / "documents" / catalogue().documents[prefix].page).read_text()
    differences = re.findall(
        r"^(\d+)\. \*\*", page.partition("## Where it differs")[2], re.MULTILINE
    )
    assert differences == [str(n) for n in range(1, len(differences) + 1)]
    assert set(re.findall(r"\[difference (\d+)\]", page)) <= set(differences)


def test_the_list_has_every_name_of_the_documents_where_they_are_at_hand() -> None:
    assert len(SOURCES) in (0, len(NAMES))
    for prefix, source in SOURCES.items():
        assert names_in(source.read_text(encoding="utf-8")) == set(NAMES[prefix]), source.name


@pytest.mark.parametrize("prefix", NAMES)
def test_the_list_has_names_and_no_sentences(prefix: str) -> None:
    assert max(len(name.split()) for name in NAMES[prefix]) <= 2
    assert len(NAMES[prefix]) == len(set(NAMES[prefix]))


def test_a_name_is_found_by_its_looks_and_by_its_place() -> None:
    text = """
An `inline(call: Kind)` and a snake_case word, a camelCase one, a pkg.member, CAPITALS, GET /events/{id}, default=20, 30 seconds.

```json
{"key": "a value that is a sentence", "status": "DONE_OR_NOT"}
```

```typescript
interface Options { connection: string; maybe?: number }
```

```
POST /events
{"in_a_request": 1}
```

client.query("INSERT INTO mine(a_column, other) VALUES($1, $2)"); SELECT FOR UPDATE SKIP LOCKED

| Field | Type | Description |
|----|----|----|
| column | VARCHAR(9) | What it is |
"""
    assert names_in(text) == {
        "inline", "call", "Kind", "snake_case", "camelCase", "pkg.member", "CAPITALS", "GET /events/{id}", "default=20",
        "30 seconds", "key", "status", "DONE_OR_NOT", "connection", "maybe", "column", "VARCHAR(9)", "VARCHAR",
        "POST /events", "in_a_request", "client.query", "mine", "a_column", "other", "SKIP LOCKED",
    }  # fmt: skip
