"""One trigger of a stream: new rows of a bucket in, matches that became certain out."""
