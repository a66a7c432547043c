//! The fuzz engine: libFuzzer around the target that the variable `TARGET` names.

#![no_main]

mod targets;

use std::env;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use targets::Target;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fuzz_target!(|input: &[u8]| target().run(input, &ALLOCATOR));

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = env::var("TARGET").expect("TARGET says which target to run");
        Target::of(&name).unwrap_or_else(|| panic!("there is no target {name}"))
    })
}
