"""What Spark calls in a worker: one bucket of a batch, one trigger of a stream."""
