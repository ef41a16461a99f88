"""The running MSH: config, listeners, workers, timers; where everything is wired together."""
