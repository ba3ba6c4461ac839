"""Where this machine has a browser."""

import shutil

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")


def browser_path():
    """The path of the first browser that is installed."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert path, "no browser: apt-get install --no-install-recommends chromium-headless-shell"
    return path
