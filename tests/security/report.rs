//! What the parts have to tell: on the screen at once, and on the page later.

use std::sync::{Mutex, MutexGuard, PoisonError};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn said() -> MutexGuard<'static, Vec<String>> {
    // Who failed in the midst of it has told what was told.
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a line.
pub(crate) fn say(line: impl Into<String>) {
    let line = line.into();
    println!("{line}");
    said().push(line);
}

/// What was told since the last time.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *said())
}
