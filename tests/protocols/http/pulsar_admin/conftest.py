import pytest

from tests.protocols.http.asgi import call


@pytest.fixture
def ask(app):
    """Return a function that sends a request, checks any given status, returns the answer."""

    async def ask(method, path, body=None, status=None, **options):
        answer = await call(app, method, path, body, **options)
        if status is not None:
            assert answer.status == status, (path, answer.body)
        return answer

    return ask
