//! Standard output, as every command has it.

use std::io::{self, ErrorKind, Write};

/// Writes all of `text`. Whoever closed the output has seen enough, which is
/// no error; a full disk is one.
///
/// # Errors
///
/// Where the output takes no more, and somebody waits for it.
pub fn write_output(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
