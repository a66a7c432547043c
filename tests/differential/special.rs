//! The cases that need more than a list of batches.

use crate::harness::Case;

pub fn all() -> Vec<Case> {
    Vec::new()
}
