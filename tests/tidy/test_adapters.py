"""An adapter is thin, seam by seam: what is longer than this does what the runtime should do, or what another one does.

A seam is one of the places where a framework lets others in: around its tools, its models, its sessions, its
checkpoints. What is counted are lines of code: neither comments and docstrings, nor blank ones.
"""

import ast
import io
import tokenize

import pytest

from tests.tidy.repository import python_files, text, tree

PLACE = "src/milepost/adapters/"
CODE_LINES = 300
SEAMS = {
    "Pydantic AI: the durability engine": ["pydantic_ai/durability", "pydantic_ai/listing", "pydantic_ai/wording"],
    "OpenAI Agents SDK: around tools": ["openai_agents/guarding", "openai_agents/holding"],
    "OpenAI Agents SDK: around models": ["openai_agents/models"],
    "OpenAI Agents SDK: pauses and snapshots": ["openai_agents/running"],
    "OpenAI Agents SDK: a session": ["openai_agents/session"],
    "LangGraph: around tools": ["langgraph/outcomes", "langgraph/promises"],
    "LangGraph: a checkpointer": ["langgraph/checkpointer", "langgraph/fencing"],
    "LangGraph: what a checkpoint holds, as data": ["langgraph/values"],
    "LangGraph: the tables of threads": ["langgraph/threads_kept"],
    "Claude Agent SDK: hooks, and a server of tools": ["claude/guarding", "claude/serving"],
    "MCP: around a client": ["mcp/sending", "mcp/server"],
    "MCP: a connection that lasts, for the wrapper and the gateway": ["mcp/connection"],
    "OpenTelemetry: from the record to spans": ["opentelemetry/spans"],
    "OpenTelemetry: handing them over": ["opentelemetry/tracing"],
}
GATEWAY = "mcp/gateway/"  # a server that people run, and no adapter: each of its modules is thin


def code_lines(source: str) -> int:
    """Return how many lines of a module have code on them."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def modules() -> list[str]:
    """Return the adapters' modules; what all of them share lies beside their folders."""
    names = [name.removeprefix(PLACE).removesuffix(".py") for name in python_files("src") if name.startswith(PLACE)]
    return [name for name in names if "/" in name and not name.endswith("__init__")]


def size(name: str) -> int:
    return code_lines(text(f"{PLACE}{name}.py"))


def test_every_module_of_an_adapter_belongs_to_one_seam() -> None:
    listed = [name for seam in SEAMS.values() for name in seam]

    assert sorted(listed) == sorted(name for name in modules() if not name.startswith(GATEWAY))


@pytest.mark.parametrize("seam", SEAMS)
def test_a_seam_of_an_adapter_has_less_than_300_lines_of_code(seam: str) -> None:
    sizes = {name: size(name) for name in SEAMS[seam]}

    assert sum(sizes.values()) < CODE_LINES, f"{sizes}: what two adapters do belongs beside them, or into the runtime"


def test_a_module_of_the_gateway_and_one_that_adapters_share_has_less_than_300_lines_of_code() -> None:
    shared = [name.removeprefix(PLACE).removesuffix(".py") for name in python_files("src") if name.startswith(PLACE)]
    alone = [name for name in shared if name.startswith(GATEWAY) or "/" not in name]

    assert {name: size(name) for name in alone if size(name) >= CODE_LINES} == {}


def test_no_adapter_imports_another_one() -> None:
    for name in modules():
        own = name.partition("/")[0]
        for node in ast.walk(tree(f"{PLACE}{name}.py")):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("milepost.adapters."):
                of = (node.module or "").split(".")[2:]
                assert len(of) == 1 or of[0] == own, f"{name} imports {node.module}"


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    source = (
        '"""Says.\n\nMore.\n"""\n\n# a reason\ndef f(a,\n      b):  # why\n    """Does."""\n    return """x\ny"""\n'
    )

    assert code_lines(source) == 4
