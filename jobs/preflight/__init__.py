"""`python -m jobs preflight`: asks Google Cloud, read-only, whether a stack can come up before anything is paid for."""
