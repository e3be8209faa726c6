//! Tests of batches: golden bytes, round trips, and bytes that mean harm.
