//! Records, channels, formatter and sinks of Trapline.
