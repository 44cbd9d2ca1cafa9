"""From blocks to the prompt that the model gets, and to the requests that carry it."""

from promptkeel.prompt.builder import BlockingPromptBuilder, BuilderCore, PromptBuilder
from promptkeel.prompt.layout import Layout, Section, TailPart
from promptkeel.prompt.prompt import Prompt
from promptkeel.prompt.requests import CachedPrefix, Handle, Request
from promptkeel.prompt.tail import Tail
from promptkeel.prompt.unproven import UnprovenBuilder

__all__ = [
    "BlockingPromptBuilder",
    "BuilderCore",
    "CachedPrefix",
    "Handle",
    "Layout",
    "Prompt",
    "PromptBuilder",
    "Request",
    "Section",
    "Tail",
    "TailPart",
    "UnprovenBuilder",
]
