//! Timers that a worker sets and another thread keeps.
//!
//! A runtime that keeps timers looks at the clock and at its wheel each time
//! that it goes to sleep, which for a worker is once for nearly every request,
//! while its own timers are set about once in half a minute. So one thread
//! keeps them for all workers. On any other thread a timer is one of its own
//! runtime.

use std::cell::OnceCell;
use std::future::{Future, pending};
use std::sync::OnceLock;
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Handle};
use tokio::time::{self, Instant, Interval, Sleep, Timeout};

thread_local! {
    static KEEPER: OnceCell<Handle> = const { OnceCell::new() };
}

/// The runtime that keeps the timers of workers. It lasts as long as the
/// process: a timer whose runtime is gone panics.
///
/// # Errors
///
/// Where the system gives no thread.
pub fn keeper() -> io::Result<Handle> {
    static RUNNING: OnceLock<Handle> = OnceLock::new();
    if let Some(running) = RUNNING.get() {
        return Ok(running.clone());
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("timers".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(RUNNING.get_or_init(|| handle).clone())
}

/// From now on the timers of this thread are kept by that runtime.
pub fn keep_by(keeper: Handle) {
    KEEPER.with(|place| {
        place.get_or_init(|| keeper);
    });
}

/// Like [`time::sleep_until`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    kept(|| time::sleep_until(deadline))
}

/// Like [`time::timeout`].
pub fn timeout<F: Future>(span: Duration, future: F) -> Timeout<F> {
    kept(|| time::timeout(span, future))
}

/// Like [`time::interval`].
pub fn interval(every: Duration) -> Interval {
    kept(|| time::interval(every))
}

fn kept<T>(set: impl FnOnce() -> T) -> T {
    KEEPER.with(|keeper| {
        let _context = keeper.get().map(Handle::enter);
        set()
    })
}
