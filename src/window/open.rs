//! The attempts of a window that are not acknowledged.

use super::attempt::{Attempt, AttemptId, Identity, OPEN_MAX, State};
use crate::ids::{Epoch, Sequence};

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

/// Attempts in one block of memory; what stands beyond `len` means nothing.
#[derive(Debug)]
struct Many {
    /// `len <= OPEN_MAX`
    len: usize,
    attempts: [Attempt; OPEN_MAX],
}

impl Many {
    fn as_slice(&self) -> &[Attempt] {
        self.attempts.get(..self.len).unwrap_or_default()
    }

    fn as_mut_slice(&mut self) -> &mut [Attempt] {
        self.attempts.get_mut(..self.len).unwrap_or_default()
    }

    /// Adds an attempt, for which room was made.
    fn push(&mut self, attempt: Attempt) {
        if let Some(free) = self.attempts.get_mut(self.len) {
            *free = attempt;
            self.len += 1;
        }
    }

    fn remove(&mut self, place: usize) -> Attempt {
        let removed = self.attempts[place];
        self.attempts.copy_within(place + 1..self.len, place);
        self.len -= 1;
        removed
    }

    fn retain(&mut self, stays: impl Fn(&Attempt) -> bool) {
        let goes = self.as_slice().iter().position(|attempt| !stays(attempt));
        // Nearly always all stay.
        let Some(mut kept) = goes else { return };
        for place in kept + 1..self.len {
            if stays(&self.attempts[place]) {
                self.attempts[kept] = self.attempts[place];
                kept += 1;
            }
        }
        self.len = kept;
    }
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

    /// Whether `is` says so of each. Cheaper than to go over them with
    /// [`Self::iter`], for what every batch asks.
    pub(super) fn all(&self, mut is: impl FnMut(&Attempt) -> bool) -> bool {
        let lone = self.lone.as_ref().map(Lone::attempt);
        lone.as_ref().is_none_or(&mut is) && self.many().iter().all(is)
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
        match &mut self.many {
            Some(many) => many.push(attempt),
            None => match self.lone.take() {
                Some(lone) => self.make_many(lone.attempt()).push(attempt),
                None => {
                    self.make_many(attempt);
                }
            },
        }
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
        let many = self.many.as_mut()?;
        let sent = |a: &Attempt| a.state == State::Sent { id };
        let place = many.as_slice().iter().position(sent)?;
        Some(many.remove(place))
    }

    /// Those that are not on their way, among others.
    pub(super) fn settled_mut(&mut self) -> impl Iterator<Item = &mut Attempt> {
        self.many
            .iter_mut()
            .flat_map(|many| many.as_mut_slice().iter_mut())
    }

    pub(super) fn find_mut(&mut self, is: impl Fn(&Attempt) -> bool) -> Option<&mut Attempt> {
        if let Some(lone) = self.lone {
            let attempt = lone.attempt();
            if !is(&attempt) {
                return None;
            }
            self.lone = None;
            return self.make_many(attempt).as_mut_slice().first_mut();
        }
        let many = self.many.as_mut()?;
        many.as_mut_slice().iter_mut().find(|attempt| is(attempt))
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Attempt) -> bool) {
        if self.lone.is_some_and(|lone| !stays(&lone.attempt())) {
            self.lone = None;
        }
        if let Some(many) = &mut self.many {
            many.retain(stays);
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
        for attempt in self.settled_mut() {
            if behind(attempt.batch.epoch, attempt.batch.first) {
                attempt.mirrors = 0;
            }
        }
    }

    /// Makes room for one more, where need be by forgetting the oldest that is
    /// not on its way: what it was, or `None` where there is no room.
    pub(super) fn make_room(&mut self) -> Option<Option<State>> {
        let Some(many) = &mut self.many else {
            return Some(None);
        };
        if many.len < OPEN_MAX {
            return Some(None);
        }
        let oldest = |lost: fn(&State) -> bool| many.as_slice().iter().position(|a| lost(&a.state));
        let least = oldest(|state| matches!(state, State::NotWritten { .. }))
            .or_else(|| oldest(|state| matches!(state, State::Unknown { .. })))?;
        Some(Some(many.remove(least).state))
    }

    /// Holds no memory where there is no attempt.
    pub(super) fn give_back_room(&mut self) {
        if self.many.is_some() && self.many().is_empty() {
            self.many = None;
        }
    }

    fn many(&self) -> &[Attempt] {
        self.many.as_ref().map_or(&[], |many| many.as_slice())
    }

    /// Makes room for more than one attempt, of which this is the first.
    fn make_many(&mut self, first: Attempt) -> &mut Many {
        self.many.insert(Box::new(Many {
            len: 1,
            attempts: [first; OPEN_MAX],
        }))
    }
}
