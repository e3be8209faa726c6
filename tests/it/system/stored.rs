//! Files of a partition as they lie on disk: which there are, where batches begin.
