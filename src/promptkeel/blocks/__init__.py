"""What an operator declares: which blocks a prompt has and where their content comes from."""

from promptkeel.blocks.sources import BlockSource, ComputedSource, FileSource, MemoryLane, StaticSource
from promptkeel.blocks.spec import CANONICAL, TIERS, PromptBlockSpec, Tier, in_prompt_order

__all__ = [
    "CANONICAL",
    "TIERS",
    "BlockSource",
    "ComputedSource",
    "FileSource",
    "MemoryLane",
    "PromptBlockSpec",
    "StaticSource",
    "Tier",
    "in_prompt_order",
]
