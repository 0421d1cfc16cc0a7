"""Plots and the page of a study, and the picture of a model's attention.

The page is one file that needs no network. Its charts are Vega-Lite; without scripts it shows the
same charts as pictures.
"""

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("t2t_jax.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # in the given order
    return environment


def page(template: str, **content: Any) -> str:
    """Returns the HTML of a template; `content` is escaped unless it is `Markup`."""
    return _environment().get_template(template).render(**content)


@functools.cache
def vega() -> Markup:
    """Returns Vega-Lite and its dependencies as one script."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(script.replace("</script", "<\\/script"))
