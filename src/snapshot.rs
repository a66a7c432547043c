//! What outlives the process: acknowledgements, the ports of brokers, totals.
//!
//! A retry is absorbed after a restart as before it, and clients find their
//! brokers behind the ports that they know. Nothing depends on it: whatever is
//! missing, too old or not to be read makes the broker answer, as without
//! `state.dir`.
//!
//! # Why an old snapshot gives no wrong answer
//!
//! Only facts are loaded (SEMANTICS 7.5): the cluster acknowledged exactly
//! these bytes at exactly this offset, with all in-sync replicas. That stays
//! true however much the snapshot missed; what may not be concluded from a
//! fact after a restart is that nothing came after it ([`window::keep`], rows
//! 11 to 13 of 7.3 do not begin at a restored fact, and a 45 behind one
//! contradicts nobody). Case by case:
//!
//! | since the snapshot was written | |
//! |---|---|
//! | batches were acknowledged, and hapax was killed | their retries are forwarded; the next batch is no gap |
//! | the producer went on to a higher epoch | an exact retry of the old one is still what the cluster acknowledged; anything else is forwarded |
//! | the facts were dropped because the log contradicted them | a snapshot without them is written within a second (later only where writing itself takes long); after a kill before that they count again until the next contradiction, at most for the TTL: as if the client had heard the acknowledgement |
//! | a topic was deleted and created again | a topic with an id is found by its id alone; a name leads there only after a Metadata answer says so. One known by name alone: the TTL bounds it |
//! | unclean election, or a cluster that was rolled back | the truncation check of 7.4, and the TTL |
//! | the sequence wrapped | identity has the checksum and the length; 2³¹ records within the TTL would be needed besides |
//! | another cluster is behind `upstream.bootstrap` | facts wait until the cluster's id is known, and are dropped if it is another |
//! | the listener is another one, the user is another one | not absorbed (A5): facts carry the identity that earned them, and are dropped when `listen.bootstrap` moved |
//! | `acks=1` | not in a snapshot: who leads now is not known |
//! | the clock was set back | the machine's own clock counts where it can ([`clock`]), else the facts are dropped; a fact is never taken for younger than it is |
//! | the mode changed | facts are what the cluster said, whatever hapax did about it |
//! | `sequence.ttl`, `windowBatches` or `maxWindows` were lowered | the new bounds hold |
//! | a second hapax uses the directory | it starts empty, writes nothing, and takes over when the first one has ended: the system unlocks the file of a killed process |
//! | the process or the machine ended while a snapshot was written | the file is replaced whole or not at all; what a broken disk makes of it, the checksum finds |
//!
//! User names stand in the file as they are: a hash of a name hides it from
//! nobody who can guess names. Nobody but the owner may read it (mode 0600),
//! and no password is ever in it: none is in the ledger.

pub mod clock;
pub mod facts;
pub mod format;
mod keeper;
mod lifetime;
mod store;

pub use format::{Flaw, Head, Record, Snapshot, Stamp, decode, encode};
pub use keeper::{Keeper, StartError};
pub use lifetime::{Lifetime, Totals};
pub use store::{DirectoryError, FILE, probe};
