"""Reads documents: their blocks of code, the commands they tell a reader to give, their links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])

FENCE = re.compile(
    r"(?P<skip><!-- not run: \S.*? -->\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of its first line of code, from 0
    run: bool


def name(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def blocks(text: str) -> list[Block]:
    return [
        Block(
            language=found["language"],
            code=re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
            line=text.count("\n", 0, found.start("code")),
            run=found["skip"] is None,
        )
        for found in FENCE.finditer(text)
    ]


def program(text: str, *languages: str) -> str:
    """The code of a document, each block on its own lines, so that what is said of it points into it."""
    lines: list[str] = []
    for block in blocks(text):
        if block.language in languages and block.run:
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    return "\n".join(lines)


def documents_with(*languages: str) -> list[Path]:
    return [one for one in DOCUMENTS if program(one.read_text("utf-8"), *languages)]


def commands(text: str) -> Iterator[list[str]]:
    """What a reader is told to type: the lines of shell blocks, after their $ if they have one, in words."""
    for block in blocks(text):
        if block.language in {"console", "sh"}:
            lines = block.code.replace("\\\n", " ").splitlines()
            if block.language == "console":
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            for line in lines:
                for command in re.split(r" \| | && |; ", line):
                    yield words(command)


def words(command: str) -> list[str]:
    """A command in words, without its comment and what goes into its environment."""
    try:
        parts = shlex.split(command, comments=True)
    except ValueError:  # a quote that goes on in the next line
        return []
    while parts and re.fullmatch(r"\w+=.*", parts[0]):
        parts.pop(0)
    return parts


def prose(text: str) -> str:
    return FENCE.sub("", text)


def inline(text: str) -> list[str]:
    """What is `written so` in a line."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def anchors(text: str) -> set[str]:
    """The names of a document's headings, as the site makes them, and the ids it gives itself."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    slugs = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in plain]
    return {re.sub(r"[-\s]+", "-", slug) for slug in slugs} | set(
        re.findall(r"\bid=\"([^\"]+)\"", text)
    )
