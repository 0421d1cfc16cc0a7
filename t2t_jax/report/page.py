"""A page from its template: styles and scripts within, every text escaped."""

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("t2t_jax.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(template: str, **content: Any) -> str:
    """The HTML of a template; `content` is text unless it is `Markup`."""
    return _environment().get_template(template).render(**content)


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@functools.cache
def vega() -> Markup:
    """Vega-Lite and what it stands on, as one script."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle(_SNIPPET).replace("</script", "<\\/script"))
