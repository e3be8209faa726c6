//! Tests of FaultyDisk: a disk that lies must lie in just the ways that it says.
