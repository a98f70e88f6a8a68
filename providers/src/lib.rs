//! Names to sites: DProbes offsets and function globs.
