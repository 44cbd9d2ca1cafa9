"""Memory in and out of files: JSON Lines, and the knowledge-graph file of the MCP memory server.

Parsing and spelling lines is pure (``jsonl``, ``mcp``), and so is what a line means for what is there (``taking``);
``importing`` reads a stream into a store's transactions, ``exporting`` reads a store, ``files`` writes files.
"""

from promptkeel.exchange.entries import Authored, Connection, Entry, Statement
from promptkeel.exchange.exporting import Export, export_request_steps, export_steps
from promptkeel.exchange.files import replace_file
from promptkeel.exchange.importing import ImportReport, ImportSettings, Rejected, import_steps, rejects_all
from promptkeel.exchange.jsonl import JsonLines
from promptkeel.exchange.mcp import KnowledgeGraph

__all__ = [
    "Authored",
    "Connection",
    "Entry",
    "Export",
    "ImportReport",
    "ImportSettings",
    "JsonLines",
    "KnowledgeGraph",
    "Rejected",
    "Statement",
    "export_request_steps",
    "export_steps",
    "import_steps",
    "rejects_all",
    "replace_file",
]
