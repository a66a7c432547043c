//! Start-up checklist and exit codes.

fn main() {}
