"""What Spark looks for by itself: `spark.read.format("postroad")` works without registration."""

from postroad.pipeline.source import PostroadSource as DefaultSource

__all__ = ["DefaultSource"]
