//! Trapline's own small guests, prebuilt and embedded.
