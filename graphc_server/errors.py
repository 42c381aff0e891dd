"""What graphc_server raises; each error says with which HTTP status it is answered."""

from __future__ import annotations

from graphc_images import ImageError, SettingError


class RequestError(ImageError):
    """A request that cannot be done; `status` is HTTP's."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class StoreError(ImageError):
    """The database or a file of the server cannot be read or written; nothing of the request was kept."""


def status_of(problem: BaseException) -> int:
    """HTTP's status for what went wrong while a picture was painted: 422 for what was asked for, 500 for what broke (A1111)."""
    if isinstance(problem, RequestError):
        return problem.status
    return 422 if isinstance(problem, SettingError) else 500
