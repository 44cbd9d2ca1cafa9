"""From blocks to the prompt that the model gets."""

from promptkeel.prompt.builder import BlockingPromptBuilder, BuilderCore, PromptBuilder
from promptkeel.prompt.prompt import Prompt
from promptkeel.prompt.unproven import UnprovenBuilder

__all__ = ["BlockingPromptBuilder", "BuilderCore", "Prompt", "PromptBuilder", "UnprovenBuilder"]
