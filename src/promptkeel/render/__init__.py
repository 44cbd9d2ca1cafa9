"""Facts to text: the trust boundary. Pure: the same values give the same bytes on every interpreter."""

from promptkeel.render.blocks import Omission, RenderedBlock, render_block
from promptkeel.render.policy import RENDER_VERSION, RenderPolicy
from promptkeel.render.region import render_region

__all__ = [
    "RENDER_VERSION",
    "Omission",
    "RenderPolicy",
    "RenderedBlock",
    "render_block",
    "render_region",
]
