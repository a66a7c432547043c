//! A relay that can lose one acknowledgement and then let nobody in.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Buf;

use crate::listeners::Listeners;
use crate::raw::read_frame;
use crate::tools::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);
const PRODUCE: i16 = 0;

#[derive(Default)]
struct State {
    /// The next Produce answer does not pass: its connection is cut.
    cuts: bool,
    /// New connections are turned away.
    shut: bool,
    /// They are from the next end of one on.
    shuts_behind: bool,
    /// Produce answers that passed.
    answers: u64,
    /// Connections that have ended.
    ended: u64,
}

/// The relay; it ends when dropped.
#[derive(Default)]
pub(crate) struct Door {
    state: Arc<Mutex<State>>,
    listeners: Listeners,
}

impl Door {
    /// Clients at `from` reach `to`.
    pub(crate) fn leads(&mut self, from: &str, to: &str) {
        let state = self.state.clone();
        self.listeners
            .add(from, to, move |_, near, far| relay(&state, near, far));
    }

    /// The next Produce answer is lost, and nobody gets in afterwards.
    pub(crate) fn lose_answer(&self) {
        let mut state = self.state.lock().expect("no holder panics");
        (state.cuts, state.shut) = (true, true);
    }

    /// Once a connection has ended nobody else gets in.
    pub(crate) fn shut_behind(&self) {
        self.state.lock().expect("no holder panics").shuts_behind = true;
    }

    pub(crate) fn open(&self) {
        let mut state = self.state.lock().expect("no holder panics");
        (state.shut, state.shuts_behind) = (false, false);
    }

    /// Waits until that many Produce answers have passed.
    pub(crate) fn wait_for_answers(&self, count: u64) {
        self.wait("Produce answers", |state| state.answers >= count);
    }

    /// Waits until a connection has ended.
    pub(crate) fn wait_for_end(&self) {
        self.wait("a connection's end", |state| state.ended > 0);
    }

    fn wait(&self, what: &str, done: impl Fn(&State) -> bool) {
        wait_for(what, PATIENCE, || {
            done(&self.state.lock().expect("no holder panics")).then_some(())
        });
    }
}

fn relay(state: &Arc<Mutex<State>>, near: TcpStream, far: TcpStream) {
    if state.lock().expect("no holder panics").shut {
        return;
    }
    let keys: Arc<Mutex<HashMap<i32, i16>>> = Arc::default();
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    let (mut from_near, mut to_far) = (clone(&near), clone(&far));
    let (mut from_far, mut to_near) = (far, near);
    let noted = keys.clone();
    std::thread::spawn(move || {
        while let Ok(Some(frame)) = read_frame(&mut from_near) {
            let mut head = frame.slice(4..);
            let key = head.get_i16();
            head.advance(2);
            noted
                .lock()
                .expect("no holder panics")
                .insert(head.get_i32(), key);
            if to_far.write_all(&frame).is_err() {
                break;
            }
        }
        // The other side may have ended first.
        let _ = to_far.shutdown(Shutdown::Write);
    });
    let state = state.clone();
    std::thread::spawn(move || {
        while let Ok(Some(frame)) = read_frame(&mut from_far) {
            let correlation = frame.slice(4..).get_i32();
            let key = keys.lock().expect("no holder panics").remove(&correlation);
            let mut state = state.lock().expect("no holder panics");
            let produced = key == Some(PRODUCE);
            if produced && std::mem::take(&mut state.cuts) {
                break;
            }
            if to_near.write_all(&frame).is_err() {
                break;
            }
            state.answers += u64::from(produced);
        }
        let mut state = state.lock().expect("no holder panics");
        state.shut |= state.shuts_behind;
        state.ended += 1;
        // Either may have ended first.
        let _ = to_near.shutdown(Shutdown::Both);
        let _ = from_far.shutdown(Shutdown::Both);
    });
}
