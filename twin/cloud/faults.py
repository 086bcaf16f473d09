"""What can be made to go wrong, in one table; `python -m twin fault NAME` sets one, `--clear` lifts it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong while it stands; `effect` is shown to whoever lists the faults."""

    effect: str


STOCKOUT = "stockout"
GPU_QUOTA = "gpu-quota"
LUSTRE_PORT = "lustre-port"
API_ERROR = "api-error"
PRODUCER_HELD = "producer-held"
LUSTRE_FULL = "lustre-full"
BUCKET_DENIED = "bucket-denied"

FAULTS: dict[str, Fault] = {
    STOCKOUT: Fault(effect="no zone has GPU machines: pools of a fixed size end in ERROR, others get no node"),
    GPU_QUOTA: Fault(effect="the project's quota of preemptible B200 GPUs is 0 instead of 128"),
    LUSTRE_PORT: Fault(effect="every Lustre instance answers on the other port (6988 for 988): pods cannot mount it"),
    API_ERROR: Fault(effect="the next create, update or delete answers HTTP 500, once"),
    LUSTRE_FULL: Fault(effect="no Lustre instance has room for a byte more (or see fill-lustre): saves fail"),
    BUCKET_DENIED: Fault(effect="Cloud Storage answers the pods' account 403: it has no role on any bucket"),
    PRODUCER_HELD: Fault(effect="service producers hold the connection of a network long after Lustre is deleted"),
}
