"""What pages of report and explorer share: templates, the charts of a page, Vega's JavaScript."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from unbraid.config import JsonDict

if TYPE_CHECKING:
    from unbraid.figures import Figure

HERE = Path(__file__).parent


class Charts:
    """Collects the figures of a page while its template is rendered."""

    def __init__(self) -> None:
        self.specs: list[JsonDict] = []

    def add(self, figure: "Figure") -> int:
        """The place of this figure's chart among those of the page."""
        self.specs.append(figure.spec)
        return len(self.specs) - 1

    def packed(self) -> str:
        """All charts as JSON, compressed, in base64: nothing in it can end a script element."""
        text = json.dumps(self.specs, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed in one script, as vl-convert carries them."""
    import vl_convert

    return vl_convert.javascript_bundle().replace("</script", "<\\/script")


@cache
def environment() -> jinja2.Environment:
    """Templates with autoescape on; a name that is not there is an error."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@cache
def own_file(name: str) -> str:
    """The text of a file that stands beside this one: `style.css` or `charts.js`."""
    return (HERE / name).read_text(encoding="utf-8")
