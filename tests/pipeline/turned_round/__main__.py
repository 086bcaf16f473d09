"""The program with some of its declared order turned round, so that what would happen now and then without a
`depends_on` happens always: the later one no longer waits, and the earlier one waits for it.

$TURNED_ROUND has a line for each: the later one, what it names in `depends_on`, and of that the one that is to wait.
$LAST names the variable of `__main__.py` after which it ends, so that a test of Google's refusals needs no cluster.
"""

import ast
import asyncio
import os
from collections import defaultdict
from typing import Any

import pulumi.resource
from pulumi import Output

from twin.state import REPOSITORY

TURNED_ROUND = [line.split() for line in os.environ["TURNED_ROUND"].splitlines()]
SDK = vars(pulumi.resource)
register_resource = SDK["register_resource"]
come: defaultdict[str, asyncio.Future[pulumi.Resource]] = defaultdict(asyncio.get_event_loop().create_future)


def register_turned_round(  # the SDK's own signature
    res: pulumi.Resource, ty: str, name: str, custom: Any, remote: Any, new: Any, props: Any, opts: Any, *rest: Any
) -> None:
    for later, named, earlier in TURNED_ROUND:
        if name == later:
            opts.depends_on = [each for each in opts.depends_on if each._name != named]
            come[later].set_result(res)
        elif name == earlier:
            opts.depends_on = [*(opts.depends_on or []), Output.from_input(come[later])]
    register_resource(res, ty, name, custom, remote, new, props, opts, *rest)


def wiring() -> ast.Module:
    """The program's own statements, up to the last one wanted."""
    program = ast.parse((REPOSITORY / "__main__.py").read_text())
    made = [ast.unparse(each.targets[0]) if isinstance(each, ast.Assign) else "" for each in program.body]
    end = made.index(os.environ["LAST"]) + 1 if "LAST" in os.environ else None
    return ast.Module(program.body[:end], type_ignores=[])


SDK["register_resource"] = register_turned_round
exec(compile(wiring(), "__main__.py", "exec"), {"__name__": "__main__"})
