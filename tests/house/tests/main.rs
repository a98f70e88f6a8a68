//! The house rules in one binary: a module a subject. A new file needs its `mod` line here.

mod architecture;
mod circles;
mod test_files;
