//! Room for connections of the admin server.
//!
//! When all is taken, whoever has said and taken nothing for the longest time
//! makes room: connections that are only held open must not keep out the probe
//! by which a Pod lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The places, and who has them.
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Vec<(Arc<Activity>, AbortHandle)>,
}

impl Places {
    pub(super) fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            taken: Vec::with_capacity(places),
        }
    }

    /// A place, as soon as one is free, or made free.
    pub(super) async fn place(&mut self) -> OwnedSemaphorePermit {
        self.taken.retain(|(_, task)| !task.is_finished());
        let free = Arc::clone(&self.free);
        if let Ok(place) = free.clone().try_acquire_owned() {
            return place;
        }
        let idle = self.taken.iter().filter(|(activity, _)| !activity.stays());
        if let Some((_, task)) = idle.min_by_key(|(activity, _)| activity.newest()) {
            task.abort();
        }
        let place = free.acquire_owned().await;
        place.expect("nobody closes the semaphore")
    }

    /// Remembers who has a place.
    pub(super) fn taken(&mut self, activity: Arc<Activity>, task: AbortHandle) {
        self.taken.push((activity, task));
    }
}

/// When a connection last said or took something.
pub(super) struct Activity {
    began: Instant,
    /// Milliseconds since `began`.
    newest: AtomicU64,
    stays: AtomicBool,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            newest: AtomicU64::new(0),
            stays: AtomicBool::new(false),
        }
    }

    /// It says or takes something now.
    pub(super) fn see(&self) {
        let age = u64::try_from(self.began.elapsed().as_millis());
        self.newest
            .store(age.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// It makes no room: it follows events, of which there are long without any.
    pub(super) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    fn newest(&self) -> Instant {
        let newest = Duration::from_millis(self.newest.load(Ordering::Relaxed));
        self.began + newest
    }
}
