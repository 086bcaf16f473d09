"""What must hold between the values of a stack's config: each rule one pure function, with its source.

A rule's parameters are named after the sections that it reads (`stack` is the stack's name), so that it runs whenever
those sections are sound, whatever is wrong with the others. It returns what it found; it raises nothing.
"""

from collections.abc import Callable

from components.rules.addresses import (
    addresses_disjoint,
    control_plane_is_closed,
    range_holds_lustre,
    ranges_hold_nodes,
)
from components.rules.adoption import adopted_parts_share_a_network, one_connection, peering_is_ours
from components.rules.checkpoints import checkpoints_fit_lustre, last_save_precedes_node_end, saves_are_short
from components.rules.fast_network import (
    fast_network_addresses_enough,
    fast_network_addresses_free,
    fast_network_has_nics,
)
from components.rules.gke import gke_version_suffices
from components.rules.images import head_outwaits_the_pull, mirror_is_near, mirror_is_readable, streaming_has_a_mirror
from components.rules.lustre import capacity_on_tier, filesystem_name, zone_offers_lustre
from components.rules.machines import (
    fixed_pool_has_its_nodes,
    flex_start_is_elastic,
    machine_types_known,
    pods_fit_machines,
    reservation_is_named,
    zone_in_region,
    zone_offers_machine,
)
from components.rules.names import labels_fit, names_fit, namespace_is_a_name
from components.rules.ray import ray_version_follows_image
from components.rules.training import recipe_can_train
from jobs.problems import Problem

Rule = Callable[..., list[Problem]]

RULES: tuple[Rule, ...] = (
    names_fit,
    labels_fit,
    namespace_is_a_name,
    zone_in_region,
    zone_offers_machine,
    zone_offers_lustre,
    addresses_disjoint,
    range_holds_lustre,
    ranges_hold_nodes,
    peering_is_ours,
    adopted_parts_share_a_network,
    one_connection,
    capacity_on_tier,
    filesystem_name,
    control_plane_is_closed,
    gke_version_suffices,
    machine_types_known,
    reservation_is_named,
    flex_start_is_elastic,
    fixed_pool_has_its_nodes,
    fast_network_has_nics,
    fast_network_addresses_free,
    fast_network_addresses_enough,
    pods_fit_machines,
    ray_version_follows_image,
    streaming_has_a_mirror,
    mirror_is_near,
    mirror_is_readable,
    head_outwaits_the_pull,
    recipe_can_train,
    checkpoints_fit_lustre,
    saves_are_short,
    last_save_precedes_node_end,
)
