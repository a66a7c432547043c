//! The exit codes of every command, as sysexits.h has them where it can.

/// Done as asked, or drained.
pub const DONE: u8 = 0;
/// Failed while running, or ended by a second signal.
pub const FAILED: u8 = 1;
/// Typed wrongly: `EX_USAGE`.
pub const USAGE: u8 = 64;
/// The upstream, a broker or hapax cannot be reached: `EX_UNAVAILABLE`.
pub const UNAVAILABLE: u8 = 69;
/// A configuration that is not valid: `EX_CONFIG`.
pub const CONFIGURATION: u8 = 78;
