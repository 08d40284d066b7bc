"""Which hosts there are, where each is installed, and how it is started without Milepost and with it."""

from benchmarks.adapters.scenario import Host
from benchmarks.child import BENCH, HOSTS, MAIN

ALL = (
    Host(
        "LangGraph, LangChain",
        "its SQLite saver, `sync`",
        (BENCH, "benchmarks.adapters.bare_langgraph BATCH"),
        (MAIN, "tests.adapters.langgraph.host BATCH agent"),
    ),
    Host(
        "Pydantic AI",
        "the prompt",
        (MAIN, "tests.adapters.pydantic_ai.host BATCH bare"),
        (MAIN, "tests.adapters.pydantic_ai.host BATCH durable"),
    ),
    Host(
        "OpenAI Agents SDK",
        "its SQLite session",
        (MAIN, "tests.adapters.openai_agents.host BATCH bare session"),
        (MAIN, "tests.adapters.openai_agents.host BATCH durable session"),
    ),
    Host(
        "MCP: client wrapper",
        "the prompt",
        (MAIN, "benchmarks.adapters.mcp_host BATCH bare"),
        (MAIN, "benchmarks.adapters.mcp_host BATCH client"),
    ),
    Host(
        "MCP: gateway",
        "the prompt",
        (MAIN, "benchmarks.adapters.mcp_host BATCH bare"),
        (MAIN, "benchmarks.adapters.mcp_host BATCH gateway"),
    ),
    Host(
        "a loop of one's own; `milepost.agents`",
        "the prompt",
        (MAIN, "benchmarks.adapters.loop BATCH bare"),
        (MAIN, "benchmarks.adapters.loop BATCH durable"),
    ),
    Host(
        "Claude Agent SDK",
        "the prompt",
        (HOSTS, "tests.hosts.claude.host bare BATCH:LIFE"),
        (HOSTS, "tests.hosts.claude.host built_in BATCH:LIFE"),
    ),
    Host(
        "Google ADK",
        "its SQLite session, resumable",
        (HOSTS, "tests.hosts.adk.host bare session BATCH:LIFE"),
        (HOSTS, "tests.hosts.adk.host BATCH:LIFE"),
    ),
    Host(
        "Strands Agents",
        "its session of files",
        (HOSTS, "tests.hosts.strands.host bare session BATCH:LIFE"),
        (HOSTS, "tests.hosts.strands.host BATCH:LIFE"),
    ),
    Host(
        "Microsoft Agent Framework",
        "the prompt",
        (HOSTS, "tests.hosts.agent_framework.host bare BATCH:LIFE"),
        (HOSTS, "tests.hosts.agent_framework.host BATCH:LIFE"),
    ),
)
