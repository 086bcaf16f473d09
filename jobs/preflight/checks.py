"""All checks that ask Google, in the order of the report."""

from collections.abc import Mapping

from jobs.preflight.access import check_apis, check_roles
from jobs.preflight.existing import check_existing_cluster, check_existing_lustre, check_existing_network
from jobs.preflight.findings import Check
from jobs.preflight.leftovers import check_leftovers
from jobs.preflight.places import check_lustre_zone, check_machines, check_network_profile, check_zone
from jobs.preflight.quotas import check_gpu_quota, check_lustre_quota
from jobs.preflight.reservation import check_reservation

CHECKS: Mapping[str, Check] = {
    "APIs": check_apis,
    "roles": check_roles,
    "zone": check_zone,
    "machines": check_machines,
    "Lustre zone": check_lustre_zone,
    "RDMA": check_network_profile,
    "GPU quota": check_gpu_quota,
    "Lustre quota": check_lustre_quota,
    "reservation": check_reservation,
    "network": check_existing_network,
    "cluster": check_existing_cluster,
    "Lustre": check_existing_lustre,
    "leftovers": check_leftovers,
}
