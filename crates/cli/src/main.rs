//! mini-ork
fn main() {}
