"""An outside world to test against: real services in processes of their own, each of which knows what it truly did.

    with World(tmp_path / "world") as world:
        account = world.account("anna")
        account.obey(Rules(script=(Toxic("drop"),)))  # the first change is applied, and its answer is never heard
        ... # run a workflow whose tools speak to account.url("queryable", "ship", "one")
        assert await check(store, account.applied()) == []

`http_service` has an endpoint for each class of effect, `mail_service` takes mails, `drop_service` takes files. Tools
reach the first two through `proxy`, which loses, delays, breaks and invents answers as the `rules` of the account say:
by script, or by a seed that does the same again.
"""

from milepost.testing.world.outside import Account, AccountClock, World
from milepost.testing.world.process import NotStarted
from milepost.testing.world.rules import KINDS, Rules, Toxic

__all__ = ["KINDS", "Account", "AccountClock", "NotStarted", "Rules", "Toxic", "World"]
