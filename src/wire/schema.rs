//! The layouts of the messages that are not walked by hand, as tables.
