//! The schedule of a certificate: single stories, and properties over random ones.

#![allow(clippy::unwrap_used)]

mod pacer;
mod properties;
mod stories;
mod world;
