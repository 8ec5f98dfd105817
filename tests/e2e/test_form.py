"""A person with a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

from spillway.sandbox import debian
from spillway.sandbox.settings import PROJECT, cache_directory, credentials
from spillway.testing.airflow_server import PATIENCE_SECONDS, AirflowSandbox, wait_for

pytestmark = pytest.mark.timeout(900)

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
PICTURES = PROJECT / "build" / "pictures"
SIZE: ViewportSize = {"width": 1280, "height": 900}
MILLISECONDS = PATIENCE_SECONDS * 1000


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page of Debian's Chromium with a new profile; the installed one where there is one."""
    program, environment = shutil.which("chromium"), None
    if program is None:
        root = debian.unpack(["chromium"], cache=cache_directory())
        environment = debian.environment(root)
        program = str(root / "usr/lib/chromium/chromium")
    options: dict[str, Any] = {"args": list(ARGUMENTS), "env": environment, "headless": True}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(tmp_path, executable_path=program, **options)
        browser.pages[0].set_viewport_size(SIZE)
        try:
            browser.set_default_timeout(MILLISECONDS)
            yield browser.pages[0]
        finally:
            browser.close()


def test_a_person_fills_the_form_sees_the_run_and_why_it_ran_there(airflow: AirflowSandbox, page: Page) -> None:
    expect.set_options(timeout=MILLISECONDS)
    before = {run.run_id for run in airflow.runs("train")}
    page.goto(f"{airflow.api.url}/dags/train")
    page.locator("input[name=username]").fill("admin")
    page.locator("input[name=password]").fill(credentials(airflow.settings)["airflow_admin_password"])
    page.get_by_role("button", name="Sign in").click()

    page.get_by_role("button", name="Trigger").first.click()
    job = page.locator("#element_job")
    expect(job).to_have_value("digits")
    expect(page.get_by_text("Name of a job file in include/jobs, with or without .yaml.")).to_be_visible()
    job.fill("digits.yaml")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "train-form.png")
    page.get_by_role("dialog").get_by_role("button", name="Trigger").last.click()

    (run,) = wait_for(lambda: [run for run in airflow.runs("train") if run.run_id not in before])
    assert run.facts()["conf"]["job"] == "digits.yaml"
    assert run.facts()["logical_date"] is not None
    assert run.wait() == "success"
    page.goto(f"{airflow.api.url}/dags/train/runs/{run.run_id}")
    expect(page.get_by_role("link", name="settle").first).to_be_visible()
    page.screenshot(path=PICTURES / "train-run.png")

    page.goto(f"{airflow.api.url}/dags/train/runs/{run.run_id}/tasks/place")
    page.get_by_role("link", name="Placement", exact=True).click()
    expect(page.frame_locator("iframe[title=Placement]").get_by_text("equals the stored decision")).to_be_visible()
    page.screenshot(path=PICTURES / "train-placement.png")

    (name,) = airflow.training_runs(run)
    page.goto(f"{airflow.api.url}/plugin/placement-decisions")
    listed = page.frame_locator("iframe[title='Placement decisions']")
    listed.get_by_role("link", name=name).click()
    expect(listed.get_by_text("equals the stored decision")).to_be_visible()
