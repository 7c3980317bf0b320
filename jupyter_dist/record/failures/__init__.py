"""Why a run failed."""
