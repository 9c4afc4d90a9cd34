"""Where in a taught model to look, and on how many stories: the `[capture]` of a line."""

import re

from pydantic import Field

from unbraid.capture.normalisation import Kind
from unbraid.config import Record, nearest
from unbraid.errors import Refusal
from unbraid.models import Shape

NO_ROWS = re.compile(r".*hook_(pattern|kl|gate|variance|frame|memory|energy)")
"""What a model can record that is not one row of numbers a token that a dictionary could learn."""


class Capture(Record):
    """The model that starts from `seed`, what is at `site` (one of its hooks) at every token of so many `stories`.

    The stories are ones that no model was taught on. Dictionaries are scored on 8 % of them, which they never see.
    """

    site: str = "blocks.0.hook_resid_post"
    stories: int = Field(default=3000, ge=50, le=10**9)
    normalise: Kind = "both"
    seed: int = Field(default=0, ge=0, lt=1 << 63)


def sites(model: Shape) -> list[str]:
    """Every place of a model that has one row of numbers a token."""
    return [name for name in model.hooks() if not NO_ROWS.fullmatch(name)]


def refuse_no_site(capture: Capture, model: Shape) -> None:
    if capture.site not in sites(model):
        raise Refusal(
            f"capture.site is '{capture.site:.60}', which the model has not; {nearest(capture.site, sites(model))}"
        )
