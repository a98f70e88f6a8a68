//! Whole-system tests of Trapline.
