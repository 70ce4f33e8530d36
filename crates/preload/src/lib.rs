//! The interposed symbols.
