//! The attempts of a window that are not acknowledged.

use super::attempt::{Attempt, AttemptId, Identity, OPEN_MAX, State};
use crate::ids::{Epoch, Sequence};

/// Room that is made at once where one attempt is not the only one.
const FEW: usize = 4;

/// Open attempts in order of arrival; `len() <= OPEN_MAX`.
///
/// Most windows have none, and the one that a quiet window gets stands in the
/// window itself: no memory is asked for before a second one.
#[derive(Default, Debug)]
pub(super) struct Open {
    /// The only attempt; `None` where there is `many`.
    lone: Option<Lone>,
    many: Option<Box<Many>>,
}

/// An attempt that is on its way.
#[derive(Clone, Copy, Debug)]
struct Lone {
    first: Sequence,
    count: u32,
    crc: u32,
    len: u32,
    id: AttemptId,
    epoch: Epoch,
    mirrors: u8,
}

const _: () = assert!(size_of::<Option<Lone>>() == 24);

#[derive(Debug)]
struct Many {
    attempts: Vec<Attempt>,
}

impl Lone {
    /// The attempt, if it is on its way.
    fn of(attempt: &Attempt) -> Option<Self> {
        let State::Sent { id } = attempt.state else {
            return None;
        };
        let Identity {
            epoch,
            first,
            count,
            crc,
            len,
        } = attempt.batch;
        Some(Self {
            first,
            count,
            crc,
            len,
            id,
            epoch,
            mirrors: attempt.mirrors,
        })
    }

    fn attempt(&self) -> Attempt {
        Attempt {
            batch: Identity {
                epoch: self.epoch,
                first: self.first,
                count: self.count,
                crc: self.crc,
                len: self.len,
            },
            state: State::Sent { id: self.id },
            mirrors: self.mirrors,
        }
    }
}

impl Open {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Attempt> + '_ {
        let lone = self.lone.as_ref().map(Lone::attempt);
        lone.into_iter().chain(self.many().iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lone.is_none() && self.many().is_empty()
    }

    pub(super) fn push(&mut self, attempt: Attempt) {
        if self.lone.is_none() && self.many.is_none() {
            self.lone = Lone::of(&attempt);
            if self.lone.is_some() {
                return;
            }
        }
        self.many_mut().push(attempt);
    }

    /// Takes out the attempt of this name, if it is still on its way.
    pub(super) fn take(&mut self, id: AttemptId) -> Option<Attempt> {
        if let Some(lone) = &self.lone {
            let attempt = lone.attempt();
            return (lone.id == id).then(|| {
                self.lone = None;
                attempt
            });
        }
        let attempts = &mut self.many.as_mut()?.attempts;
        let place = attempts
            .iter()
            .position(|a| a.state == State::Sent { id })?;
        Some(attempts.remove(place))
    }

    pub(super) fn find_mut(&mut self, is: impl Fn(&Attempt) -> bool) -> Option<&mut Attempt> {
        let place = self.iter().position(|attempt| is(&attempt))?;
        self.many_mut().get_mut(place)
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Attempt) -> bool) {
        if self.lone.is_some_and(|lone| !stays(&lone.attempt())) {
            self.lone = None;
        }
        if let Some(many) = &mut self.many {
            many.attempts.retain(stays);
        }
    }

    /// A batch that others of its epoch follow has come again.
    pub(super) fn renew_patience_behind(&mut self, epoch: Epoch, first: Sequence) {
        let behind = |e: Epoch, f: Sequence| e == epoch && f.distance(first) > 0;
        if let Some(lone) = &mut self.lone
            && behind(lone.epoch, lone.first)
        {
            lone.mirrors = 0;
        }
        for attempt in self.many.iter_mut().flat_map(|many| &mut many.attempts) {
            if behind(attempt.batch.epoch, attempt.batch.first) {
                attempt.mirrors = 0;
            }
        }
    }

    /// Room for one more attempt: the oldest that was certainly not written
    /// gives way, else the oldest whose outcome is unknown.
    pub(super) fn make_room(&mut self) -> Option<()> {
        let Some(many) = &mut self.many else {
            return Some(());
        };
        if many.attempts.len() >= OPEN_MAX {
            let oldest =
                |lost: fn(&State) -> bool| many.attempts.iter().position(|a| lost(&a.state));
            let least = oldest(|state| matches!(state, State::NotWritten { .. }))
                .or_else(|| oldest(|state| matches!(state, State::Unknown { .. })))?;
            many.attempts.remove(least);
        }
        Some(())
    }

    /// Holds no memory where there is no attempt.
    pub(super) fn give_back_room(&mut self) {
        if self.many.is_some() && self.many().is_empty() {
            self.many = None;
        }
    }

    fn many(&self) -> &[Attempt] {
        self.many.as_ref().map_or(&[], |many| &many.attempts)
    }

    /// All attempts as they can be changed.
    fn many_mut(&mut self) -> &mut Vec<Attempt> {
        let many = self.many.get_or_insert_with(|| {
            Box::new(Many {
                attempts: Vec::with_capacity(FEW),
            })
        });
        many.attempts
            .extend(self.lone.take().map(|lone| lone.attempt()));
        &mut many.attempts
    }
}
