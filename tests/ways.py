"""What the lines of choices between ways say, for tests."""


def ways_in(text: bytes) -> dict[str, str]:
    """The way of each key."""
    lines = [line.partition("#")[0] for line in text.decode().splitlines()]
    return {key.strip(): way.strip() for key, equals, way in (line.partition("=") for line in lines) if equals}
