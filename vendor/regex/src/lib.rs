//! `regex-lite` under the name of `regex`, for packages that ask for the large one and need the small one.

pub use regex_lite::*;
