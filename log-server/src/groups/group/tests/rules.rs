//! Rules of a group, one by one.
