import pytest

from tests.protocols.http.console.browser import Browser


@pytest.fixture
def browser(app):
    """Return a browser that visits the broker's console."""
    return Browser(app)
