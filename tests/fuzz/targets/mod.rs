//! What is fuzzed: plain functions of bytes, which panic where hapax does what it must not. The fuzz engine calls them, and
//! so does the short run of `cargo test`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shared by a test, which clippy would exempt, and an engine, each using its own part"
)]

pub mod addresses;
mod admin;
mod choices;
mod config;
mod coordinators;
mod dev;
pub mod log;
mod login;
pub mod messages;
pub mod produce;
mod second;
mod session;
mod small;
mod snapshot;
pub mod versions;
mod window;

use peak_alloc::PeakAlloc;

#[allow(unused_imports, reason = "the engine makes no seeds")]
pub use choices::Choices;

/// A function to be fuzzed.
pub struct Target {
    /// Its name on the command line, and that of its corpus.
    pub name: &'static str,
    run: fn(&[u8]),
    /// The longest input worth trying.
    pub len_max: usize,
    /// Bytes that it may ask for at once, whatever it is given.
    memory: usize,
    /// How many inputs the short run tries.
    pub short: u32,
}

/// What a byte of input may cost in memory: an element of an array takes one or two bytes on the wire.
const MEMORY_PER_BYTE: usize = 1 << 10;

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self {
            name,
            run,
            len_max: 512,
            memory: 256 << 10,
            short: 20_000,
        }
    }

    /// Its inputs are long, or cost much.
    const fn heavy(mut self, len_max: usize, memory: usize, short: u32) -> Self {
        self.len_max = len_max;
        self.memory = memory;
        self.short = short;
        self
    }

    /// Runs it, and holds it to its memory: what is announced must not be asked for before it is there.
    ///
    /// # Panics
    /// Where hapax does what it must not.
    pub fn run(&self, input: &[u8], allocator: &PeakAlloc) {
        // What is made once for each thread is no cost of an input.
        window::rules();
        allocator.reset_peak_usage();
        let before = allocator.current_usage();
        (self.run)(input);
        let asked = allocator.peak_usage().saturating_sub(before);
        let most = self.memory + MEMORY_PER_BYTE * input.len();
        assert!(
            asked <= most,
            "{asked} bytes asked for, by an input of {} bytes",
            input.len()
        );
    }

    /// The one of that name.
    pub fn of(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// All of them. Those that make valid messages make large ones of few bytes.
pub const TARGETS: &[Target] = &[
    Target::new("frames", small::frames),
    Target::new("headers", small::headers),
    Target::new("batches", small::batches),
    Target::new("sasl", small::sasl),
    Target::new("login", login::frames).heavy(512, 256 << 10, 4_000),
    Target::new("produce_request", produce::any_request),
    Target::new("produce_request_valid", produce::valid_request).heavy(512, 8 << 20, 20_000),
    Target::new("produce_response", produce::any_response),
    Target::new("produce_response_valid", produce::valid_response).heavy(512, 8 << 20, 8_000),
    Target::new("addresses", addresses::any_response),
    Target::new("addresses_valid", addresses::valid_response).heavy(512, 8 << 20, 8_000),
    Target::new("coordinators", coordinators::any),
    Target::new("coordinators_valid", coordinators::valid).heavy(512, 8 << 20, 20_000),
    Target::new("api_versions", versions::any),
    Target::new("api_versions_valid", versions::valid).heavy(512, 8 << 20, 8_000),
    Target::new("log", log::any),
    Target::new("log_valid", log::valid).heavy(512, 8 << 20, 4_000),
    Target::new("renumbered", log::renumbered),
    Target::new("window", window::drive).heavy(512, 256 << 10, 6_000),
    Target::new("snapshot", snapshot::any).heavy(512, 1 << 20, 3_000),
    Target::new("snapshot_sealed", snapshot::sealed).heavy(512, 1 << 20, 6_000),
    Target::new("config_file", config::files).heavy(2048, 4 << 20, 4_000),
    Target::new("config_values", config::values).heavy(512, 4 << 20, 4_000),
    Target::new("config_flags", config::command_line).heavy(256, 8 << 20, 300),
    Target::new("session", session::drive).heavy(1024, 16 << 20, 500),
    Target::new("session_reading", session::drive_reading).heavy(1024, 16 << 20, 250),
    Target::new("admin_requests", admin::requests).heavy(256, 8 << 20, 1_000),
    Target::new("admin_answers", admin::answers).heavy(512, 8 << 20, 1_000),
    Target::new("dev_requests", dev::requests).heavy(1024, 16 << 20, 1_000),
    Target::new("dev_bytes", dev::bytes).heavy(512, 16 << 20, 1_000),
];
