"""Agents: declared like a tool or a workflow, and run as a workflow whose segment is one turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from milepost.agents import segments
from milepost.agents.limits import Limits, Price
from milepost.agents.messages import PER_MESSAGE, Reply, Task, Usage, readable, with_own_ids
from milepost.agents.models import Model, ModelFailed, Request, ToolSpec
from milepost.agents.results import FINAL, FinalResult, NotTaken
from milepost.agents.turns import ASKING, Stop, Turns
from milepost.core.duration import Duration
from milepost.core.queues import DEFAULT
from milepost.core.retry import Retry
from milepost.definitions.call import Call
from milepost.definitions.tools import Cost, Tool, tool
from milepost.definitions.values import encode
from milepost.definitions.workflows import Prompt, Workflow, prompt
from milepost.errors import ExtraMissing, InvalidDeclaration

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

R = TypeVar("R")

LONGEST_NAME = 64


class Agent(Generic[R]):
    """A model, its instructions, its tools and its limits. `workflow` is what an App lists and runs, with a Task.

    * `model`: a name that pydantic-ai knows ("anthropic:claude-…", extra `agents`), a model of pydantic-ai's, or
      anything with the `Model` protocol, such as a `ScriptedModel`.
    * `instructions`: text, or prompts with versions of their own (`mp.prompt`). They, the model's name and the tools
      stand in the manifest: what differs under a run that waits blocks it, unless it is declared compatible.
    * `tools`: what the model may call. Effects, approvals, scopes, `once=` and policy hold as for any step.
    * `result`: `str` for what the model says when it calls nothing more; any other type is given by a call, checked
      against the type and by `check` (raise ValueError with the reason), and sent back `repairs` times at most.
    * `limits` and `prices` (by the model's name, dollars a million tokens): units of the run's budget; hand `budget`
      over at the start. A limit in dollars needs the model's price. `max_output` bounds the tokens of one reply.
    * `stop`: functions of the Conversation, asked before each turn; the first that returns `mp.done(…)` or
      `mp.fail(…)` ends the run so.
    * `stream`: emit the model's text as it comes (see `Screen`). `together`: how many calls of a reply run at once.
    * `timeout` and `retry`: of one model call. Attempts that were cut off count, as any other attempt.

    Raises InvalidDeclaration for what cannot be honoured, and ExtraMissing where a model needs pydantic-ai.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        model: Model | PydanticModel | str,
        result: type[R],
        tools: Sequence[Tool[..., Any]] = (),
        instructions: str | Prompt | Sequence[Prompt] = "",
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        check: Callable[[R], None] | None = None,
        repairs: int = 2,
        stop: Sequence[Stop] = (),
        max_output: int = 4_096,
        settings: Mapping[str, Any] | None = None,
        stream: bool = False,
        together: int = 20,
        timeout: Duration = "120s",
        retry: Retry | None = None,
        compatible_with: Iterable[str] = (),
        queue: str = DEFAULT,
    ) -> None:
        if repairs < 0 or max_output < 1 or together < 1:
            raise InvalidDeclaration(f"agent {name}: repairs, max_output and together count from 0, 1 and 1.")
        self.name = name
        self.limits = limits or Limits()
        self._given = model
        self.model_name = _name_of(model)
        self._price = self._price_of(prices or {})
        self._prompts = _prompts(instructions)
        self._instructions = "\n\n".join(one.text for one in self._prompts)
        self._final: FinalResult[R] = FinalResult(result, name, check)
        self._specs = tuple(ToolSpec(one.name, one.description, one.parameters) for one in tools)
        self._max_output = max_output
        self._settings = dict(settings or {})
        self._stream = stream
        self._retry = retry or Retry(5)
        ask = self._asking(timeout)
        self.asks = ask.name
        self.ends_by_call = not self._final.is_text
        self.tools = tuple(one.name for one in tools)
        taken = {one.name for one in tools} & {FINAL, ask.name}
        if taken:
            raise InvalidDeclaration(f"agent {name}: {', '.join(taken)} is a tool of the loop's own. Rename yours.")
        self.workflow: Workflow[Task, R] = Workflow(
            name, version=version, input=Task, result=result, tools=[ask, *tools], prompts=self._prompts,
            models={ask.name: self.model_name}, compatible_with=compatible_with, queue=queue,
        )  # fmt: skip
        turns = Turns(
            ask, tools, self._final, model=self.model_name, frame=self._frame, stop=stop, repairs=repairs,
            together=together,
        )  # fmt: skip
        segments.declare(self.workflow, turns)

    def __repr__(self) -> str:
        return f"<agent {self.name} version {self.workflow.version}, {self.model_name}>"

    @property
    def budget(self) -> dict[str, Decimal | int]:
        """What `limits` allow one run, for `budget=` where it is started: nothing is spent that was not granted."""
        return self.limits.budget

    @cached_property
    def model(self) -> Model:
        """What answers."""
        if isinstance(self._given, Model):
            return self._given
        providers = import_module("milepost.agents.pydantic_models")  # the extra `agents`, where it is used
        model: Model = providers.PydanticAIModel(self._given, self.model_name)
        return model

    def refusal(self, arguments: str) -> str:
        """Return why the arguments of a final answer are not taken, in words for the model; empty where they are."""
        try:
            self._final.of_call(arguments)
        except NotTaken as error:
            return str(error)
        return ""

    @property
    def _frame(self) -> int:
        """The most tokens that stand around the messages in every request: instructions, tools, the result's type."""
        specs = [*self._specs, *([self._final.spec] if self._final.spec else [])]
        tools = sum(len(encode([spec.name, spec.description, spec.parameters])) + PER_MESSAGE for spec in specs)
        return len(self._instructions.encode()) + tools + PER_MESSAGE

    def _price_of(self, prices: Mapping[str, Price]) -> Price | None:
        price = prices.get(self.model_name)
        if price is None and self.limits.usd is not None:
            raise InvalidDeclaration(
                f"agent {self.name} has a limit in usd, and prices= do not name {self.model_name!r}. Add its price: "
                f"prices={{{self.model_name!r}: agents.Price(input=…, output=…)}}, dollars a million tokens."
            )
        return price

    def _asking(self, timeout: Duration) -> Tool[[int, str, int], Reply]:
        """Return the model call as a tool: a read that costs.

        It is named after the agent and not after the model, so that a run whose call waits (for money, say, or for a
        provider that is down) can go on under another model that was declared compatible.
        """
        name = f"ask.{self.name}"[:LONGEST_NAME]

        @tool(name=name, effect="read", timeout=timeout, retry=self._retry, volatile=["most_in"])
        async def ask(call: Call, turn: int, conversation: str, most_in: int) -> Reply:  # noqa: ARG001
            try:
                return await self._ask(call, turn)
            except ModelFailed as error:
                raise error.recorded from error

        @ask.cost
        def _(turn: int, conversation: str, most_in: int) -> Cost:  # noqa: ARG001
            return self._worst(most_in)

        return ask

    def _worst(self, most_in: int) -> dict[str, Decimal | int]:
        """Return what one model call costs at worst, in the units that have a limit."""
        worst: dict[str, Decimal | int] = {"turns": 1, "tokens": most_in + self._max_output}
        if self._price is not None:
            most = max(Decimal(self._price.input), Decimal(self._price.cached or 0))
            worst["usd"] = Price(most, self._price.output).of(Usage(most_in, self._max_output))
        return {unit: amount for unit, amount in worst.items() if unit in self.limits.budget}

    async def _ask(self, call: Call, turn: int) -> Reply:
        asking = ASKING.get()
        if asking is None:
            raise ModelFailed("the model of an agent was asked outside a turn of it")
        if call.attempt > self._retry.attempts:
            raise ModelFailed(f"cut off, or failed, in each of {self._retry.attempts} attempts; see retry=")
        request = Request(
            self._instructions, asking.messages, self._specs, self._final.spec, self._max_output, self._settings,
            self._stream, turn, call.attempt,
        )  # fmt: skip
        said = asking.tell.begin(call.attempt) if self._stream else _unheard
        reply = await self.model.ask(request, said)
        self._settle(call, reply)
        return with_own_ids(readable(reply), asking.messages, turn)

    def _settle(self, call: Call, reply: Reply) -> None:
        """Say what a call cost; where the provider counted nothing, what was reserved is charged in full."""
        if not reply.usage.tokens:
            return
        spent: dict[str, Decimal | int] = {"turns": 1, "tokens": reply.usage.tokens}
        if self._price is not None:
            spent["usd"] = self._price.of(reply.usage)
        call.spent(**{unit: amount for unit, amount in spent.items() if unit in self.limits.budget})


def _name_of(model: Model | PydanticModel | str) -> str:
    if not isinstance(model, Model) and find_spec("pydantic_ai") is None:
        raise ExtraMissing("models named by a text", "agents")
    if isinstance(model, str):
        return model
    return model.name if isinstance(model, Model) else model.model_id


def _unheard(_: str) -> None:
    """Show nothing."""


def _prompts(given: str | Prompt | Sequence[Prompt]) -> tuple[Prompt, ...]:
    if isinstance(given, Prompt):
        return (given,)
    if isinstance(given, str):
        return (prompt("instructions", given),) if given else ()
    return tuple(given)
