"""How a fleet says that trying again is right."""

from __future__ import annotations

from tuneport.errors import Unavailable


class NotStarted(Unavailable):
    """Nothing was started and nothing is wrong with the job: the same submission may be tried again.

    Any other error of `Fleet.submit` is a refusal, after which the job is over.
    """
