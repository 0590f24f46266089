import pytest


def cases(names: str | tuple[str, ...], *rows: object, **options: object) -> pytest.MarkDecorator:
    """pytest.mark.parametrize with one argument per row."""
    return pytest.mark.parametrize(names, rows, **options)
