//! The schedule of a certificate: single stories, and properties over random ones.

mod pacer;
mod properties;
mod stories;
mod world;
