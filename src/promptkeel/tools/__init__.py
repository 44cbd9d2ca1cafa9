"""What an agent's own model may do to its memory: plain functions with JSON Schemas, within what blocks permit."""

from promptkeel.tools.agent import AgentTools, BlockingAgentTools, ToolCore
from promptkeel.tools.limits import ToolLimits
from promptkeel.tools.schemas import TOOL_NAMES, ToolSchema

__all__ = ["TOOL_NAMES", "AgentTools", "BlockingAgentTools", "ToolCore", "ToolLimits", "ToolSchema"]
