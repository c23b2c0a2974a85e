"""Somebody who looks at the dashboard with a real browser, and notes whatever the browser complains of."""

import re
import shutil
from typing import Any, Self

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

PATIENCE = 30_000  # milliseconds until what must happen is taken not to happen
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

expect.set_options(timeout=PATIENCE)

# What a policy forbids is told to the page it forbids it to.
LISTEN = """
document.addEventListener("securitypolicyviolation", (event) =>
    console.error(`the policy was violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


def launch() -> Any:
    """Playwright and a browser of the system's."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed")
    started = sync_playwright().start()
    # Containers have neither the namespaces for its sandbox nor much shared memory.
    args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    return started, started.chromium.launch(executable_path=program, args=args)


class Visitor:
    """A tab that shows a server's dashboard."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        settings = {"viewport": DESKTOP, "reduced_motion": "reduce", "color_scheme": "light"}
        self._context = browser.new_context(**{**settings, **options})
        self._context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.url = url
        self.complaints: list[str] = []
        self._forgiven: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(LISTEN)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _heard(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.complaints.append(f"another host was asked: {request.url}")

    def open(self, place: str = "overview", heading: str | re.Pattern[str] | None = None) -> Self:
        """Go to a place of the dashboard, and wait for its heading."""
        self.page.goto(f"{self.url}/#/{place}")
        if heading is not None:
            self.sees_heading(heading)
        return self

    def sees_heading(self, heading: str | re.Pattern[str]) -> None:
        expect(self.page.locator("#heading")).to_contain_text(heading)

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible()

    def sees_toast(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("#toasts")).to_contain_text(text)

    def row(self, text: str | re.Pattern[str]) -> Locator:
        """Of the table on the page, the one that says this."""
        return self.page.get_by_role("row").filter(has_text=text)

    def press(self, name: str, within: Locator | None = None) -> None:
        (within or self.page).get_by_role("button", name=name, exact=True).click()

    def answers(self, action: str, **fields: str) -> None:
        """Fill in the dialog that has opened, and say yes."""
        dialog = self.page.locator("#dialog")
        expect(dialog).to_be_visible()
        for name, text in fields.items():
            dialog.locator(f"[name={name}]").fill(text)
        dialog.get_by_role("button", name=action, exact=True).click()
        expect(dialog).to_be_hidden()

    def type(self, keys: str) -> None:
        """Press keys one after another, as `g e` are."""
        for key in keys.split():
            self.page.keyboard.press(key)

    def has_nothing_to_scroll_sideways(self) -> None:
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wide) <= 0, f"{self.page.url} is wider than its window"

    def forgive(self, part: str) -> None:
        """Complaints that say this, now or later, are to be expected here: the console notes every answer of 400 and more."""
        self._forgiven.append(part)

    def is_content(self) -> None:
        left = [
            said for said in self.complaints if not any(part in said for part in self._forgiven)
        ]
        assert not left, left

    def close(self) -> None:
        self._context.close()
