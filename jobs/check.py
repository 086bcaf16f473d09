"""`python -m jobs check`: the training command of a stack or recipe, or every reason why it cannot train.

Needs no cloud, no engine and no cluster.
"""

import argparse
import shlex
import sys
from pathlib import Path

from jobs.errors import ConfigError
from jobs.problems import Problem, Severity, errors
from jobs.recipe import paste_able, recipe_problems, render_command
from jobs.stack_file import read_recipe, read_stack


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("check", help="print the training command, or every reason why it cannot train")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--stack", metavar="STACK", help="check Pulumi.STACK.yaml in this directory")
    source.add_argument("--file", metavar="RECIPE", type=Path, help="check a recipe file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the command on standard output, warnings on standard error.

    Raises:
        UsageError: a file cannot be read.
        ConfigError: the config or the recipe cannot train.
    """
    return _check_recipe(args.file) if args.file else _check_stack(args.stack)


def _check_stack(stack: str) -> int:
    config = read_stack(stack)
    command = render_command(
        config.job.grpo,
        release=config.release,
        nodes=config.gpu_pool.node_count,
        gpus_per_node=config.accelerators.count,
        checkpoint_dir=config.checkpoint_dir,
        log_dir=config.log_dir,
    )
    _print(config.release.workdir, command, config.warnings())
    return 0


def _check_recipe(path: Path) -> int:
    recipe = read_recipe(path)
    release = recipe.known_release()
    shape = {"nodes": recipe.nodes, "gpus_per_node": recipe.gpus_per_node}
    problems = recipe_problems(recipe.grpo, release=release, section="grpo", **shape)
    if errors(problems):
        raise ConfigError(str(path), errors(problems))
    run_dir = f"/lustre/{path.stem}"
    command = render_command(
        recipe.grpo, release=release, checkpoint_dir=f"{run_dir}/checkpoints", log_dir=f"{run_dir}/logs", **shape
    )
    _print(release.workdir, command, problems)
    return 0


def _print(workdir: str, command: list[str], problems: list[Problem]) -> None:
    for problem in problems:
        if problem.severity is Severity.WARNING:
            print(problem, file=sys.stderr)
    print(f"cd {shlex.quote(workdir)}\n{paste_able(command)}")
