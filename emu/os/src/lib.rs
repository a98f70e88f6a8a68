//! Operating-system profiles: tasks and modules read out of guest memory.
