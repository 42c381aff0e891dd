"""Several machines: a server hands its jobs to workers, over Redis and Dramatiq."""
