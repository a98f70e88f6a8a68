//! The probe table and the life of a hit.
