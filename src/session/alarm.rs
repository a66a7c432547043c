//! The one timer of a session.

use super::moment::Moment;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

use crate::timers::sleep_until;

/// Later than any session lasts, where a clock cannot say as late as that.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// A timer that is not moved for every request: one that is armed for an
/// earlier moment only means another look, and is not asked again before.
#[derive(Default)]
pub(super) struct Alarm(Option<(Moment, Pin<Box<Sleep>>)>);

impl Alarm {
    /// Sees to it that the task is woken at `due`, or earlier. `Ready` where
    /// that has come. `start` is what moments are counted from.
    pub(super) fn poll(&mut self, due: Moment, start: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((armed, timer)) = &self.0
            && *armed <= due
            && !timer.is_elapsed()
        {
            return Poll::Pending;
        }
        let deadline = start.checked_add(due.age()).unwrap_or(start + FAR);
        let (armed, timer) = self
            .0
            .get_or_insert_with(|| (due, Box::pin(sleep_until(deadline))));
        *armed = due;
        timer.as_mut().reset(deadline);
        // A task that has used up its budget would not be noted as the one to
        // wake, and is not asked again.
        pin!(unconstrained(timer.as_mut())).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::coop::{has_budget_remaining, poll_proceed};

    /// Takes what the task may still do in this turn.
    fn use_up_budget(cx: &mut Context<'_>) {
        while has_budget_remaining() {
            if let Poll::Ready(budget) = poll_proceed(cx) {
                budget.made_progress();
            }
        }
    }

    async fn heard(alarm: &mut Alarm, due: Moment, start: Instant) {
        let heard = poll_fn(|cx| {
            use_up_budget(cx);
            alarm.poll(due, start, cx)
        });
        let patience = Duration::from_secs(30);
        let heard = tokio::time::timeout(patience, heard).await;
        heard.expect("the alarm is heard");
    }

    #[tokio::test]
    async fn it_is_heard_although_it_was_armed_without_budget() {
        let start = Instant::now();
        let mut alarm = Alarm::default();
        for milliseconds in [20, 40] {
            let due = Moment::of_age(Duration::from_millis(milliseconds));
            heard(&mut alarm, due, start).await;
            assert!(start.elapsed() >= due.age());
        }
    }

    #[tokio::test]
    async fn an_earlier_moment_moves_it_and_a_later_one_does_not() {
        let start = Instant::now();
        let mut alarm = Alarm::default();
        let hour = Moment::of_age(Duration::from_secs(3600));
        poll_fn(|cx| {
            assert!(alarm.poll(hour, start, cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let soon = Moment::of_age(Duration::from_millis(20));
        heard(&mut alarm, soon, start).await;
        assert!(start.elapsed() >= soon.age());
    }
}
