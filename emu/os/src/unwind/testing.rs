//! Memory for tests.
