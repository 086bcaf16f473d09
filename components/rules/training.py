"""The recipe on this stack's nodes, image and file system."""

from components.job_section import JobSection
from components.machines import GPU_MACHINES
from components.rules.ray import known_release
from components.sections import GpuPoolSection, RaySection
from jobs.problems import Problem
from jobs.recipe import recipe_problems


def recipe_can_train(gpu_pool: GpuPoolSection, ray: RaySection, job: JobSection) -> list[Problem]:
    """The recipe's own rules, on this stack's nodes and image (jobs/recipe.py, jobs/training_rules.py)."""
    release, machine = known_release(ray), GPU_MACHINES.get(gpu_pool.machine_type)
    if release is None or machine is None or machine.accelerators is None:
        return []
    return recipe_problems(
        job.grpo,
        nodes=gpu_pool.node_count,
        gpus_per_node=machine.accelerators.count,
        release=release,
        section="job.grpo",
    )
